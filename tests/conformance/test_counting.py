"""Counting created runs: each once, at any moment, however it leaves the queue."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import ops
from holdfast.sql import tallies
from tests.timeline import Timeline, new_run


def created(timeline: Timeline) -> int:
    return timeline.ask(tallies.totals())["work", "created", 0][0]


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("leaves", ["claimed", "cancelled", "postponed", "released"])
def test_single_run_is_counted_once_however_it_leaves_the_queue(
    timeline: Timeline, leaves: str, key: str | None
) -> None:
    run = timeline.submit(key=key)
    timeline.perform(lambda: ops.submit_many([new_run({"n": n}) for n in range(2)]))
    assert created(timeline) == 3
    worker = timeline.worker("a")
    if leaves == "cancelled":
        timeline.cancel(run)
    elif leaves == "postponed":
        timeline.perform(lambda: ops.postpone(run, timedelta(hours=1), "ann"))
    else:
        claim = worker.claims(run)
        if leaves == "released":
            worker.releases(claim)
            worker.claims(run)
    assert created(timeline) == 3
    worker.claim(2)
    assert created(timeline) == 3


def test_single_runs_that_leave_the_queue_together_are_counted_by_task(timeline: Timeline) -> None:
    for task in ("work", "other", "work", "other", "work"):
        timeline.submit(task=task)

    def counted() -> dict[str, int]:
        return {
            task: amount for (task, kind, _), (amount, _) in timeline.ask(tallies.totals()).items() if kind == "created"
        }

    assert counted() == {"work": 3, "other": 2}
    assert len(timeline.worker("a").claim(5)) == 5
    assert counted() == {"work": 3, "other": 2}
