"""What is measured of the whole system, read from Postgres: every API process tells the same numbers.

So take `max without (instance)` of these, never a sum over processes. The names are those of the source documents.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from time import monotonic

import psycopg
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from holdfast.domain.errors import HoldfastError
from holdfast.http.database import Database
from holdfast.ops.measure import Measures, measure
from holdfast.sql.tallies import BOUNDS, Tally

KEEP_SECONDS = 2.0
ENDINGS = ("SUCCEEDED", "FAILED", "CANCELLED")

# name, label, what it counts, the kinds of tallies that make it up
COUNTERS = (
    ("runs_created_total", "model", "Runs submitted.", ("created",)),
    ("runs_succeeded_total", "model", "Runs that ended SUCCEEDED.", ("SUCCEEDED",)),
    ("runs_failed_total", "model", "Runs that ended FAILED.", ("FAILED",)),
    ("runs_cancelled_total", "model", "Runs that ended CANCELLED.", ("CANCELLED",)),
    ("runs_retried_total", "model", "Attempts after which the run went on.", ("retried",)),
    ("stuck_runs_detected_total", "model", "Attempts whose worker let the lease pass.", ("lost",)),
    ("writes_fenced_total", "model", "Writes refused because the lease was gone.", ("fenced",)),
    ("jobs_created_total", None, "Jobs created.", ("job created",)),
    ("jobs_completed_total", None, "Jobs that ended SUCCEEDED.", ("job SUCCEEDED",)),
    ("jobs_failed_total", None, "Jobs that ended FAILED.", ("job FAILED",)),
    ("jobs_cancelled_total", None, "Jobs that ended CANCELLED.", ("job CANCELLED",)),
    ("tasks_created_total", "task", "The same as runs_created_total.", ("created",)),
    ("tasks_completed_total", "task", "The same as runs_succeeded_total.", ("SUCCEEDED",)),
    ("tasks_failed_total", "task", "The same as runs_failed_total.", ("FAILED",)),
)
HISTOGRAMS = (
    ("task_duration_seconds", "task", "How long the last attempt of ended runs took.", ENDINGS),
    ("worker_task_execution_time", "task", "How long attempts took, in seconds.", (*ENDINGS, "retried")),
    ("run_wait_seconds", "model", "From being due to the first start.", ("lag",)),
)


UP = "metrics_db_up", "Whether Postgres answered this scrape."
DOWN = GaugeMetricFamily(*UP, value=0)


class Cluster:
    """Asks Postgres, at most every few seconds however often it is scraped."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._asked_at = 0.0
        self._found: Measures | None = None

    def families(self) -> Iterator[Metric]:
        found = self._measures()
        if found is None:
            yield DOWN
        else:
            yield GaugeMetricFamily(*UP, value=1)
            yield from _counters(found.totals)
            yield from _histograms(found.totals)
            yield from _gauges(found)

    def _measures(self) -> Measures | None:
        with self._lock:
            if self._found is None or monotonic() - self._asked_at > KEEP_SECONDS:
                try:
                    self._found = self._database.perform(measure)
                except (HoldfastError, psycopg.Error):
                    self._found = None
                self._asked_at = monotonic()
            return self._found


Totals = Mapping[Tally, tuple[int, float]]


def _by_label(totals: Totals, kinds: tuple[str, ...]) -> dict[str, list[tuple[int, int, float]]]:
    """Tallies of these kinds by task: bucket, amount, seconds."""
    found: dict[str, list[tuple[int, int, float]]] = {}
    for (task, kind, bucket), (amount, seconds) in sorted(totals.items()):
        if kind in kinds:
            found.setdefault(task, []).append((bucket, amount, seconds))
    return found


def _counters(totals: Totals) -> Iterator[Metric]:
    for name, label, about, kinds in COUNTERS:
        family = CounterMetricFamily(name, about, labels=[label] if label else [])
        found = _by_label(totals, kinds)
        for task, parts in found.items():
            family.add_metric([task] if label else [], sum(amount for _, amount, _ in parts))
        if not label and not found:
            family.add_metric([], 0)
        yield family


def _histograms(totals: Totals) -> Iterator[Metric]:
    durations = HistogramMetricFamily(
        "run_duration_seconds", "How long the last attempt of ended runs took.", labels=["model", "outcome"]
    )
    for outcome in ENDINGS:
        for task, parts in _by_label(totals, (outcome,)).items():
            _add(durations, [task, outcome], parts)
    yield durations
    jobs = HistogramMetricFamily("job_duration_seconds", "How long jobs took.", labels=["outcome"])
    for outcome in ENDINGS:
        for parts in _by_label(totals, (f"job {outcome}",)).values():
            _add(jobs, [outcome], parts)
    yield jobs
    for name, label, about, kinds in HISTOGRAMS:
        family = HistogramMetricFamily(name, about, labels=[label])
        for task, parts in _by_label(totals, kinds).items():
            _add(family, [task], parts)
        yield family


def _add(family: HistogramMetricFamily, labels: list[str], parts: list[tuple[int, int, float]]) -> None:
    counts = [0] * (len(BOUNDS) + 1)
    for bucket, amount, _ in parts:
        counts[min(bucket, len(BOUNDS))] += amount
    buckets, total = [], 0
    for bound, amount in zip((*BOUNDS, float("inf")), counts, strict=True):
        total += amount
        buckets.append(("+Inf" if bound == float("inf") else repr(bound), total))
    family.add_metric(labels, buckets, sum(seconds for _, _, seconds in parts))


def _gauges(found: Measures) -> Iterator[Metric]:
    lag = GaugeMetricFamily("queue_lag_seconds", "How long the first ready run has waited.", labels=["queue"])
    depth = GaugeMetricFamily("task_queue_depth", "Runs that are ready or waiting.", labels=["queue", "state"])
    in_flight = GaugeMetricFamily("runs_in_flight", "Runs that are being executed.", labels=["queue"])
    unknown = GaugeMetricFamily(
        "runs_without_able_worker", "Ready runs of a task that no live worker of their queue knows.", labels=["queue"]
    )
    for name in {queue.name for queue in found.queues}:
        unknown.add_metric([name], sum(one.ready for one in found.unknown if one.queue == name))
    yield unknown
    for queue in found.queues:
        lag.add_metric([queue.name], queue.lag)
        depth.add_metric([queue.name, "ready"], queue.ready)
        depth.add_metric([queue.name, "waiting"], queue.waiting)
        in_flight.add_metric([queue.name], queue.running)
    yield from (lag, depth, in_flight)
    yield GaugeMetricFamily("workers_active", "Workers that live.", value=len(found.workers))
    yield GaugeMetricFamily("worker_slots", "Slots of live workers.", value=sum(w.slots for w in found.workers))
    yield GaugeMetricFamily("outbox_pending", "Events that were not delivered yet.", value=found.outbox.pending)
    oldest = found.outbox.oldest_seconds
    yield GaugeMetricFamily("outbox_oldest_seconds", "How long the oldest of them has waited.", value=oldest)
    for name in ("worker_heartbeat_age", "worker_heartbeat_age_seconds"):
        ages = GaugeMetricFamily(name, "Seconds since a live worker's last heartbeat.", labels=["worker"])
        for worker in found.workers:
            ages.add_metric([worker.id], worker.age)
        yield ages
