"""Summary: how many runs each task has had, by status, from counters that survive pruning."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.domain.records import TaskSummary
from holdfast.sql import summary as summary_sql
from holdfast.sql import tallies
from holdfast.sql.statement import Op
from holdfast.sql.tallies import Tally


def summarize() -> Op[list[TaskSummary]]:
    """Every task that ever had a run, by name."""
    totals = yield from tallies.totals()
    running = yield from summary_sql.running()
    counted = _by_task(totals)
    return [_summary(task, counted[task], running.get(task, 0)) for task in sorted(counted)]


def _by_task(totals: Mapping[Tally, tuple[int, float]]) -> dict[str, dict[str, tuple[int, float]]]:
    counted: dict[str, dict[str, tuple[int, float]]] = {}
    for (task, kind, _), (amount, seconds) in totals.items():
        kinds = counted.setdefault(task, {})
        before = kinds.get(kind, (0, 0.0))
        kinds[kind] = (before[0] + amount, before[1] + seconds)
    return {task: kinds for task, kinds in counted.items() if "created" in kinds}


def _summary(task: str, kinds: Mapping[str, tuple[int, float]], running: int) -> TaskSummary:
    def amount(kind: str) -> int:
        return kinds.get(kind, (0, 0.0))[0]

    succeeded, seconds = kinds.get("SUCCEEDED", (0, 0.0))
    failed = amount("FAILED") - amount("reopened FAILED")
    cancelled = amount("CANCELLED") - amount("reopened CANCELLED")
    # The two reads are not of one instant, so a run that moved in between may be missing from both.
    pending = max(0, amount("created") - succeeded - failed - cancelled - running)
    return TaskSummary(
        task=task,
        created=amount("created"),
        pending=pending,
        running=running,
        succeeded=succeeded,
        failed=failed,
        cancelled=cancelled,
        retried=amount("retried"),
        lost=amount("lost"),
        mean_seconds=seconds / succeeded if succeeded else None,
    )
