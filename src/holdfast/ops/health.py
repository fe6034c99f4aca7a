"""Health: figures about the whole, each read off the rows at one moment."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from holdfast.sql import tallies, vitals
from holdfast.sql.statement import Op
from holdfast.sql.vitals import Figures

__all__ = ["Figures", "Histogram", "figures", "metrics"]


@dataclass(frozen=True, slots=True)
class Histogram:
    """Durations: how many at most as long as each bound of `tallies.BOUNDS` and how many longer, all, and their sum."""

    buckets: tuple[int, ...]
    count: int
    sum: float


def figures(stale_after: float) -> Op[Figures]:
    """What a health check asks: workers that live, and tasks left behind by workers that stopped."""
    return (yield from vitals.figures(stale_after))


def metrics() -> Op[dict[str, Any]]:
    """The figures that the source names: counters and queue depth as numbers, durations as histograms.

    `tasks_*` count runs of any kind, those without a job too. `worker_task_execution_time` counts attempts, those that
    are tried again included; `worker_heartbeat_age` has the seconds since each live worker was heard, by its name.
    """
    totals = yield from tallies.totals()
    now = yield from vitals.figures(0.0)
    live = yield from vitals.workers()
    counts: dict[str, int] = defaultdict(int)
    durations: dict[str, list[tuple[int, int, float]]] = defaultdict(list)
    for (task, kind, bucket), (amount, seconds) in totals.items():
        name = kind if not task else f"task {kind}"
        counts[name] += amount
        durations[name].append((bucket, amount, seconds))
    ended = ("SUCCEEDED", "FAILED", "CANCELLED")
    return {
        "jobs_created_total": counts["job created"],
        "jobs_completed_total": counts["job SUCCEEDED"],
        "jobs_failed_total": counts["job FAILED"],
        "jobs_cancelled_total": counts["job CANCELLED"],
        "job_duration_seconds": _histogram([one for how in ended for one in durations[f"job {how}"]]),
        "tasks_created_total": counts["task created"],
        "tasks_completed_total": counts["task SUCCEEDED"],
        "tasks_failed_total": counts["task FAILED"],
        "task_duration_seconds": _histogram([one for how in ended[:2] for one in durations[f"task {how}"]]),
        "task_queue_depth": now.queue_depth,
        "workers_active": now.workers_alive,
        "worker_task_execution_time": _histogram(
            [one for how in (*ended, "retried") for one in durations[f"task {how}"]]
        ),
        "worker_heartbeat_age": {worker.name: worker.heartbeat_age for worker in live},
    }


def _histogram(found: list[tuple[int, int, float]]) -> Histogram:
    buckets = [0] * (len(tallies.BOUNDS) + 1)
    for bucket, amount, _ in found:
        buckets[bucket] += amount
    return Histogram(tuple(buckets), sum(buckets), sum(seconds for *_, seconds in found))
