"""Runs that depend on other runs."""

from __future__ import annotations

import pytest

from holdfast import ops
from holdfast.domain.errors import RunNotFound
from holdfast.domain.ids import new_id
from holdfast.domain.settling import Failed, Succeeded, settle
from holdfast.domain.values import Dependency
from holdfast.sql import leases
from tests.integration.jobs_support import ERROR, Stage, new_run, stage

__all__ = ["stage"]


def test_a_run_starts_when_all_it_waits_for_have_succeeded(stage: Stage) -> None:
    a, b, c = new_run(), new_run(), new_run()
    last = new_run(on=[a.id, b.id, c.id])
    stage.submit(a, b, c)
    stage.submit(last)
    assert stage.reason(last.id) == "dependencies"
    first, *others = stage.claim()
    assert {first.run_id, *(o.run_id for o in others)} == {a.id, b.id, c.id}
    stage.end([first])
    assert stage.claim() == []
    assert stage.end(others).released == {"default"}
    assert [claim.run_id for claim in stage.claim()] == [last.id]


def test_runs_of_a_batch_may_depend_on_each_other(stage: Stage) -> None:
    a, b, c = new_id(), new_id(), new_id()
    stage.submit(new_run(c, on=[b]), new_run(b, on=[a]), new_run(a))
    assert stage.drain() == [a, b, c]


@pytest.mark.parametrize(
    ("ending", "policy", "status"),
    [
        ("end", "success", "PENDING"),
        ("end", "failure", "CANCELLED"),
        ("end", "always", "PENDING"),
        ("fail", "success", "CANCELLED"),
        ("fail", "failure", "PENDING"),
        ("fail", "always", "PENDING"),
        ("stop", "success", "CANCELLED"),
        ("stop", "failure", "CANCELLED"),
        ("stop", "always", "PENDING"),
    ],
)
@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_each_policy_waits_for_its_outcome(stage: Stage, ending: str, policy: str, status: str, late: bool) -> None:
    a = new_run()
    b = new_run(on=[Dependency(a.id, policy)])
    stage.submit(*([a] if late else [a, b]))
    getattr(stage, ending)(stage.claim())
    if late:
        stage.submit(b)
    assert stage.status(b.id) == status
    assert len(stage.claim()) == (status == "PENDING")
    if status == "CANCELLED":
        assert stage.reason(b.id).startswith(f"unreachable: {a.id} ended")


def test_unreachable_run_ends_together_with_its_dependents(stage: Stage) -> None:
    a, b, c, d = (new_id() for _ in range(4))
    after_all, if_wrong = new_id(), new_id()
    stage.submit(
        new_run(a),
        new_run(b, on=[a]),
        new_run(c, on=[b]),
        new_run(d, on=[c, b]),
        new_run(after_all, on=[Dependency(d, "always"), Dependency(a, "always")]),
        new_run(if_wrong, on=[Dependency(b, "failure")]),
    )
    stage.fail(stage.claim())
    assert stage.statuses(a, b, c, d, if_wrong) == ["FAILED", *["CANCELLED"] * 4]
    assert [claim.run_id for claim in stage.claim()] == [after_all]


def test_long_chain_of_unreachable_runs_ends_in_one_transaction(stage: Stage) -> None:
    ids = [new_id() for _ in range(2000)]
    stage.submit(*(new_run(id_, on=ids[i - 1 : i]) for i, id_ in enumerate(ids)))
    stage.fail(stage.claim())
    assert stage.rows("select status, count(*) from holdfast.run_status group by 1 order by 1") == [
        ("CANCELLED", 1999),
        ("FAILED", 1),
    ]


def test_a_retried_run_keeps_its_dependents_waiting(stage: Stage) -> None:
    a = new_run()
    b = new_run(on=[a.id])
    stage.submit(a, b)
    stage.end(stage.claim(), Failed(ERROR))
    assert stage.statuses(a.id, b.id) == ["PENDING", "PENDING"]


def test_cancelling_a_pending_run_decides_about_its_dependents(stage: Stage) -> None:
    a = new_run()
    b, c = new_run(on=[a.id]), new_run(on=[Dependency(a.id, "always")])
    stage.submit(a, b, c)
    stage.do(lambda: ops.cancel(a.id, "not needed"))
    assert stage.statuses(b.id, c.id) == ["CANCELLED", "PENDING"]
    assert [claim.run_id for claim in stage.claim()] == [c.id]


def test_dependents_are_decided_when_a_lost_run_fails(stage: Stage) -> None:
    policy = '{"max_attempts": 1}'
    a = new_run(policy=policy)
    b = new_run(on=[a.id])
    stage.submit(a, b)
    stage.claim()
    stage.connection.execute(
        "update holdfast.workers set heartbeat_at = heartbeat_at - interval '1 hour', expires_at = holdfast.now()"
    )
    orphans = stage.do(lambda: ops.find_orphans(10))
    stage.do(lambda: ops.rescue(orphans, 0.5))
    assert stage.statuses(a.id, b.id) == ["FAILED", "CANCELLED"]


def test_dependency_on_an_unknown_run_is_refused(stage: Stage) -> None:
    ghost = new_id()
    with pytest.raises(RunNotFound, match=ghost):
        stage.submit(new_run(on=[ghost]))
    assert stage.rows("select count(*) from holdfast.runs") == [(0,)]


def test_run_waits_for_both_its_start_time_and_its_dependencies(stage: Stage) -> None:
    from datetime import timedelta

    a = new_run()
    b = new_run(on=[a.id], run_after=timedelta(hours=1))
    stage.submit(a, b)
    stage.drain()
    assert stage.rows("select blockers, reason from holdfast.waiting") == [(0, "scheduled")]
    stage.connection.execute("update holdfast.waiting set due_at = holdfast.now()")
    stage.do(lambda: ops.promote(10))
    assert stage.drain() == [b.id]


def test_wrong_counts_are_corrected_from_the_rows(stage: Stage) -> None:
    a, x = new_run(), new_run()
    b, c = new_run(on=[a.id]), new_run(on=[x.id])
    d = new_run(on=[c.id])
    stage.submit(a, b, x, c, d)
    # As if both had ended without updating their dependents.
    ways = {a.id: Succeeded("null"), x.id: Failed(ERROR, retryable=False)}
    settlements = [settle(claim, ways[claim.run_id], 0.5) for claim in stage.claim()]
    stage.do(lambda: iter(leases.settle(stage.worker, settlements)))
    found, last = stage.do(lambda: ops.heal_dependencies(limit=2))
    assert (found, last) == (2, max(b.id, c.id))
    assert stage.statuses(b.id, c.id, d.id) == ["PENDING", "CANCELLED", "CANCELLED"]
    assert stage.do(ops.heal_dependencies) == (0, None)
    assert stage.drain() == [b.id]
