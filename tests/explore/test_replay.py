"""A schedule is replayed from its line of text; schedules that once found a bug are kept."""

from __future__ import annotations

import pytest

from holdfast import ops
from holdfast.domain.ids import new_id
from holdfast.domain.settling import Succeeded, settle
from tests.explorer.explore import replay
from tests.explorer.search import Diverged
from tests.explorer.situations import SITUATIONS, arrange
from tests.explorer.stage import Stage
from tests.explorer.wire import Session
from tests.integration.worker_support import eventually

# Schedules that once violated an invariant, or would have.
ONCE_BROKEN = [
    # Pruning and a submit took two locks in opposite order.
    "submit_dedupe+prune@old_fresh:aabbbbaa",
    "submit_dedupe+prune@old_withdrawn:aabbbbaa",
    # A run was submitted into a month between the check for live runs and the drop.
    "submit+prune@old_fresh:bbbab",
    # A worker without a response to its claim would have kept the unknown lease for as long as it lives.
    "claim+cancel@ready:aa?bbbbb",
    "claim+promote@rested:baba?",
    # An outcome that was stored without a response was rejected when it was repeated.
    "succeed+cancel@leased:aaa?bbbb",
    "succeed+rescue@expiring:aaa?tba",
]


@pytest.mark.parametrize("schedule", ONCE_BROKEN)
def test_schedule_that_once_violated_an_invariant_passes(stage: Stage, schedule: str) -> None:
    assert replay(stage, schedule).violations == []


def test_schedule_is_deterministic(stage: Stage) -> None:
    first, again = (replay(stage, "succeed+cancel@leased:abab/") for _ in range(2))
    assert (first.schedules, first.crashes, first.waits) == (again.schedules, again.crashes, again.waits) == (1, 1, 1)


def test_impossible_order_is_reported(stage: Stage) -> None:
    with pytest.raises(Diverged):
        replay(stage, "succeed+cancel@leased:aaaaaaaa!")


def test_killed_process_leaves_the_same_state_as_a_rollback(stage_url: str) -> None:
    """The explorer rolls back where a client would disappear: faster than killing its backend, with the same effect."""
    scene, actor = Session(stage_url), Session(stage_url)
    try:
        case = arrange(scene, SITUATIONS["leased"], "0", (new_id(), new_id()))
        settlement = settle(case.held(), Succeeded(result="1"), 0.5)
        actor.execute("begin")
        actor.send(next(ops.finish(case.holder, [settlement])))
        actor.take()
        scene.execute("select pg_terminate_backend(%(pid)s)", {"pid": actor.pid})
        eventually(lambda: not scene.execute("select 1 from pg_stat_activity where pid = %(pid)s", {"pid": actor.pid}))
        assert scene.run(ops.get(case.run_id)).status == "RUNNING"
        assert scene.run(ops.finish(case.holder, [settlement]))[0].accepted
    finally:
        actor.close()
        scene.close()
