"""Figures about the whole system, for health checks, metrics and the summary of tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.domain.records import TaskSummary
from holdfast.sql import figures, outbox, tallies
from holdfast.sql.figures import QueueGauge, UnclaimableTask, WorkerGauge
from holdfast.sql.outbox import Backlog
from holdfast.sql.statement import Op, as_operation
from holdfast.sql.tallies import Tally


@dataclass(frozen=True, slots=True)
class Histogram:
    """Durations: the number in each bucket of `tallies.BOUNDS` plus a last one for longer durations; count and sum."""

    buckets: tuple[int, ...]
    count: int
    sum: float


overview = as_operation(figures.overview)


def metrics() -> Op[dict[str, Any]]:
    """Return the metrics of the jobs API: counters and queue depth as numbers, durations as histograms.

    `tasks_*` count all runs, including those without a job. `worker_task_execution_time` counts attempts, including
    those that are retried; `worker_heartbeat_age` has the seconds since each live worker's last heartbeat, by name.
    """
    totals = yield from tallies.totals()
    now = yield from figures.overview(0.0)
    live = yield from figures.workers()
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
        "worker_heartbeat_age": {worker.name: worker.age for worker in live},
    }


def _histogram(found: list[tuple[int, int, float]]) -> Histogram:
    buckets = [0] * (len(tallies.BOUNDS) + 1)
    for bucket, amount, _ in found:
        buckets[bucket] += amount
    return Histogram(tuple(buckets), sum(buckets), sum(seconds for *_, seconds in found))


class Measures(NamedTuple):
    totals: dict[Tally, tuple[int, float]]
    queues: list[QueueGauge]
    unclaimable: list[UnclaimableTask]
    workers: list[WorkerGauge]
    outbox: Backlog


def measure() -> Op[Measures]:
    """Return everything the metrics report. Counters are exact across restarts and pruning; gauges are current."""
    totals = yield from tallies.totals()
    queues = yield from figures.queues()
    unclaimable = yield from figures.unclaimable()
    workers = yield from figures.workers()
    backlog = yield from outbox.backlog()
    return Measures(totals, queues, unclaimable, workers, backlog)


def summarize() -> Op[list[TaskSummary]]:
    """Return the counts of every task that has ever had a run, by name, from counters that survive pruning."""
    totals = yield from tallies.totals()
    running = yield from figures.running()
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
    # The two statements have different snapshots: a run that changed in between may be missing from both.
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
