"""Listing: newest first, by every filter, page by page without gaps."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import ops
from tests.timeline import Timeline


def listed(timeline: Timeline, **filters: Any) -> list[str]:
    return [run.id for run in timeline.perform(lambda: ops.list_runs(**filters))]


def one_of_each(timeline: Timeline) -> dict[str, str]:
    """Return a run in every status, oldest first."""
    worker = timeline.worker("a")
    made = {}
    for name in ("SUCCEEDED", "FAILED", "CANCELLED", "RUNNING", "PENDING"):
        made[name] = timeline.submit({"n": name}, task=f"task {name}", queue=name, tags=(name, "all"))
        if name in ("SUCCEEDED", "FAILED", "RUNNING"):
            claim = worker.claims(made[name], name)
        if name == "SUCCEEDED":
            worker.succeeds(claim)
        if name == "FAILED":
            worker.fails(claim, retryable=False)
        if name == "CANCELLED":
            timeline.cancel(made[name])
    return made


@pytest.mark.every_driver
@pytest.mark.parametrize("status", ["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"])
def test_list_filters_by_status(timeline: Timeline, status: str) -> None:
    made = one_of_each(timeline)
    assert listed(timeline, status=status) == [made[status]]
    assert {run.status for run in timeline.perform(lambda: ops.list_runs(status=status))} == {status}


def test_list_is_newest_first(timeline: Timeline) -> None:
    made = one_of_each(timeline)
    assert listed(timeline) == list(made.values())[::-1]


@pytest.mark.every_driver
def test_list_filters_by_task_queue_and_tag(timeline: Timeline) -> None:
    made = one_of_each(timeline)
    assert listed(timeline, task="task FAILED") == [made["FAILED"]]
    assert listed(timeline, queue="RUNNING") == [made["RUNNING"]]
    assert listed(timeline, tag="CANCELLED") == [made["CANCELLED"]]
    assert listed(timeline, tag="all") == list(made.values())[::-1]
    assert listed(timeline, status="FAILED", queue="RUNNING") == []
    assert listed(timeline, task="task PENDING", tag="PENDING", status="PENDING") == [made["PENDING"]]


def test_waiting_run_is_listed_as_pending(timeline: Timeline) -> None:
    ready = timeline.submit({"n": 1})
    waits = timeline.submit({"n": 2}, run_after=timedelta(minutes=5))
    assert listed(timeline, status="PENDING") == [waits, ready]


@pytest.mark.every_driver
def test_reopened_run_is_listed_as_pending(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.cancel(run)
    timeline.retry(run)
    assert listed(timeline, status="CANCELLED") == []
    assert listed(timeline, status="PENDING") == [run]


@pytest.mark.every_driver
@pytest.mark.parametrize("status", [None, "PENDING", "SUCCEEDED"])
def test_pages_cover_the_list_without_gaps(timeline: Timeline, status: str | None) -> None:
    worker = timeline.worker("a")
    for n in range(7):
        timeline.submit({"n": n})
        if status == "SUCCEEDED":
            worker.succeeds(worker.claim()[0])
    everything = listed(timeline, status=status)
    assert len(everything) == 7
    pages: list[str] = []
    while page := listed(timeline, status=status, limit=3, **({"before": pages[-1]} if pages else {})):
        pages += page
    assert pages == everything
