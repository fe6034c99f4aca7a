"""A schedule is replayed from its line of text; those that once found something stay."""

from __future__ import annotations

import pytest

from holdfast.testing.explorer.explore import replay
from holdfast.testing.explorer.search import Diverged
from holdfast.testing.explorer.stage import Crashes, Stage

# What broke, or would have, before it was put right.
ONCE_BROKEN = [
    # Retention held one lock and waited for the next while a submitter did the same the other way round.
    "submit_dedupe+prune@old_fresh:aabbbbaa",
    "submit_dedupe+prune@old_withdrawn:aabbbbaa",
    # A run was submitted into a month between the look for live runs and its drop.
    "submit+prune@old_fresh:bbbab",
    # A worker without an answer to its claim would have kept the lease, unknown, for as long as it lives.
    "claim+cancel@ready:aa?bbbbb",
    "claim+promote@rested:baba?",
    # An ending that was written, but not answered, was refused when it was repeated.
    "succeed+cancel@leased:aaa?bbbb",
    "succeed+rescue@expiring:aaa?tba",
]


@pytest.mark.parametrize("schedule", ONCE_BROKEN)
def test_what_once_broke_holds(stage: Stage, schedule: str) -> None:
    assert replay(stage, schedule).violations == []


def test_the_same_schedule_goes_the_same_way(stage: Stage) -> None:
    first, again = (replay(stage, "succeed+cancel@leased:abab/") for _ in range(2))
    assert (first.schedules, first.crashes, first.waits) == (again.schedules, again.crashes, again.waits) == (1, 1, 1)


def test_an_order_that_cannot_be_is_told(stage: Stage) -> None:
    with pytest.raises(Diverged):
        replay(stage, "succeed+cancel@leased:aaaaaaaa!")


def test_a_real_death_is_like_a_rollback(stage: Stage, stage_url: str) -> None:
    """The explorer rolls back where a client would vanish; a vanished client leaves the same behind."""
    import psycopg

    from holdfast.testing.explorer.schedule import parse

    meeting = parse("succeed+cancel@leased:").meeting
    played = stage.play(meeting, Crashes.ALL, _first_of("a", "a!", "b", "b", "b", "b"))
    with psycopg.connect(stage_url, autocommit=True) as connection:
        pids = [actor.pid for actor in played.actors]
        assert connection.execute("select count(*) from pg_locks where pid = any(%s)", [pids]).fetchone() == (0,)
    stage.judge()
    assert stage.violations == []


def _first_of(*wanted: str):  # type: ignore[no-untyped-def]
    rest = iter(wanted)
    return lambda options: next((one for one in rest if one in options), options[0])
