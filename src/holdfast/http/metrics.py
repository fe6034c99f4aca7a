"""Metrics of the whole system, read from Postgres, and of this process.

Every API process reports the same numbers about the whole system, so aggregate them with `max without (instance)`,
never with `sum`. Every name begins with `holdfast_`; metrics that the source documents name are also exported under
that name. Labels come from bounded sets: routes as declared, never ids.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from time import monotonic
from typing import TYPE_CHECKING

import psycopg
from prometheus_client import REGISTRY, CollectorRegistry, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector

from holdfast.domain.errors import HoldfastError
from holdfast.domain.tasks import registry
from holdfast.http.database import Database
from holdfast.ops.figures import Measures, measure
from holdfast.sql.tallies import BOUNDS, Tally

if TYPE_CHECKING:
    from holdfast.http.service import Service

KEEP_SECONDS = 2.0
FINAL = ("SUCCEEDED", "FAILED", "CANCELLED")

# name, label, what it counts, the kinds of tallies that make it up
COUNTERS = (
    ("runs_created_total", "model", "Runs submitted.", ("created",)),
    ("runs_succeeded_total", "model", "Runs that ended SUCCEEDED.", ("SUCCEEDED",)),
    ("runs_failed_total", "model", "Runs that ended FAILED.", ("FAILED",)),
    ("runs_cancelled_total", "model", "Runs that ended CANCELLED.", ("CANCELLED",)),
    ("runs_retried_total", "model", "Attempts that were followed by a retry.", ("retried",)),
    ("stuck_runs_detected_total", "model", "Attempts whose worker let its lease expire.", ("lost",)),
    ("writes_fenced_total", "model", "Writes rejected because the attempt no longer held its lease.", ("fenced",)),
    ("jobs_created_total", None, "Jobs created.", ("job created",)),
    ("jobs_completed_total", None, "Jobs that ended SUCCEEDED.", ("job SUCCEEDED",)),
    ("jobs_failed_total", None, "Jobs that ended FAILED.", ("job FAILED",)),
    ("jobs_cancelled_total", None, "Jobs that ended CANCELLED.", ("job CANCELLED",)),
    ("tasks_created_total", "task", "The same as runs_created_total.", ("created",)),
    ("tasks_completed_total", "task", "The same as runs_succeeded_total.", ("SUCCEEDED",)),
    ("tasks_failed_total", "task", "The same as runs_failed_total.", ("FAILED",)),
)
HISTOGRAMS = (
    ("task_duration_seconds", "task", "How long the last attempt of ended runs took.", FINAL),
    ("worker_task_execution_time", "task", "How long attempts took, in seconds.", (*FINAL, "retried")),
    ("run_wait_seconds", "model", "Time from when a run was due until its first attempt started.", ("lag",)),
)


PREFIX = "holdfast_"
# The names of the source documents, which dashboards may rely on.
SOURCES = frozenset(
    {
        "runs_created_total",
        "runs_succeeded_total",
        "runs_failed_total",
        "run_duration_seconds",
        "queue_lag_seconds",
        "stuck_runs_detected_total",
        "jobs_created_total",
        "jobs_completed_total",
        "jobs_failed_total",
        "job_duration_seconds",
        "tasks_created_total",
        "tasks_completed_total",
        "tasks_failed_total",
        "task_duration_seconds",
        "task_queue_depth",
        "workers_active",
        "worker_task_execution_time",
        "worker_heartbeat_age",
    }
)

UP = "metrics_db_up", "Whether Postgres responded to this scrape."
DOWN = GaugeMetricFamily(PREFIX + UP[0], UP[1], value=0)


class Cluster:
    """Queries Postgres at most every few seconds, however often it is scraped."""

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
            for family in _families(found):
                yield _prefixed(family)
                if (f"{family.name}_total" if family.type == "counter" else family.name) in SOURCES:
                    yield family

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


def _families(found: Measures) -> Iterator[Metric]:
    yield GaugeMetricFamily(*UP, value=1)
    yield from _counters(found.totals)
    yield from _histograms(found.totals)
    yield from _gauges(found)


def _prefixed(family: Metric) -> Metric:
    made = Metric(PREFIX + family.name, family.documentation, family.type, family.unit)
    made.samples = [sample._replace(name=PREFIX + sample.name) for sample in family.samples]
    return made


def _by_label(totals: Totals, kinds: tuple[str, ...]) -> dict[str, list[tuple[int, int, float]]]:
    """Tallies of these kinds by task: bucket, amount, seconds."""
    found: dict[str, list[tuple[int, int, float]]] = {}
    for (task, kind, bucket), (amount, seconds) in sorted(totals.items()):
        if kind in kinds:
            found.setdefault(task, []).append((bucket, amount, seconds))
    return found


def _counters(totals: Totals) -> Iterator[Metric]:
    """Every counter exists for every task from the start, at zero, so that `increase` includes the first increment."""
    tasks = {*registry.names(), *_tasks(totals)}
    for name, label, about, kinds in COUNTERS:
        family = CounterMetricFamily(name, about, labels=[label] if label else [])
        found = _by_label(totals, kinds)
        for task in sorted(tasks | found.keys()) if label else [""]:
            family.add_metric([task] if label else [], sum(amount for _, amount, _ in found.get(task, ())))
        yield family


def _tasks(totals: Totals) -> set[str]:
    """All tasks that have ever had a run."""
    return {task for task, kind, _ in totals if kind == "created"}


def _histograms(totals: Totals) -> Iterator[Metric]:
    durations = HistogramMetricFamily(
        "run_duration_seconds", "How long the last attempt of ended runs took.", labels=["model", "outcome"]
    )
    tasks: dict[str, list[tuple[int, int, float]]] = {task: [] for task in sorted(_tasks(totals))}
    for outcome in FINAL:
        for task, parts in {**tasks, **_by_label(totals, (outcome,))}.items():
            _add(durations, [task, outcome], parts)
    yield durations
    jobs = HistogramMetricFamily("job_duration_seconds", "How long jobs took.", labels=["outcome"])
    for outcome in FINAL:
        _add(jobs, [outcome], [part for parts in _by_label(totals, (f"job {outcome}",)).values() for part in parts])
    yield jobs
    for name, label, about, kinds in HISTOGRAMS:
        family = HistogramMetricFamily(name, about, labels=[label])
        for task, parts in {**tasks, **_by_label(totals, kinds)}.items():
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
        "runs_without_able_worker",
        "Ready runs whose task no live worker of their queue has registered.",
        labels=["queue"],
    )
    for name in {queue.name for queue in found.queues}:
        unknown.add_metric([name], sum(one.ready for one in found.unclaimable if one.queue == name))
    yield unknown
    for queue in found.queues:
        lag.add_metric([queue.name], queue.lag)
        depth.add_metric([queue.name, "ready"], queue.ready)
        depth.add_metric([queue.name, "waiting"], queue.waiting)
        in_flight.add_metric([queue.name], queue.running)
    yield from (lag, depth, in_flight)
    yield GaugeMetricFamily("workers_active", "Live workers.", value=len(found.workers))
    yield GaugeMetricFamily("slots", "Slots of all live workers.", value=sum(w.slots for w in found.workers))
    yield GaugeMetricFamily("outbox_pending", "Events that have not been delivered yet.", value=found.outbox.pending)
    oldest = found.outbox.oldest_seconds
    yield GaugeMetricFamily(
        "outbox_oldest_seconds", "Age of the oldest event that has not been delivered.", value=oldest
    )
    for name in ("worker_heartbeat_age", "worker_heartbeat_age_seconds"):
        ages = GaugeMetricFamily(name, "Seconds since a live worker's last heartbeat.", labels=["worker"])
        for worker in found.workers:
            ages.add_metric([worker.id], worker.age)
        yield ages


LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
POOL = {
    "pool_size": ("holdfast_db_pool_connections", "Connections to Postgres that this process holds."),
    "pool_available": ("holdfast_db_pool_connections_available", "Connections to Postgres that are free."),
    "requests_waiting": ("holdfast_db_pool_requests_waiting", "Requests that are waiting for a connection."),
}


class Meters:
    """The requests, streams and connections of one process."""

    def __init__(self, service: Service) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._service = service
        self._registry = CollectorRegistry()
        self._latency = Histogram(
            "holdfast_http_request_duration_seconds",
            "Time from the request headers to the response headers.",
            ("route", "method", "code"),
            buckets=LATENCIES,
            registry=self._registry,
        )
        self._in_flight = Gauge(
            "holdfast_http_requests_in_flight",
            "Requests that are being handled.",
            registry=self._registry,
            multiprocess_mode="livesum",
        )
        self._registry.register(self)
        self._children: dict[tuple[str, str, int], Histogram] = {}

    def enter(self) -> None:
        self._in_flight.inc()

    def leave(self, route: str, method: str, code: int, seconds: float) -> None:
        self._in_flight.dec()
        key = (route, method if method in METHODS else "other", code)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = self._latency.labels(*key)
        child.observe(seconds)

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("holdfast_sse_streams", "Open streams and waits.", value=self._service.streams.open)
        for key, (name, about) in POOL.items():
            yield GaugeMetricFamily(name, about, value=self._service.database.pool.get_stats().get(key, 0))

    def describe(self) -> list[Metric]:
        return []

    def families(self) -> Iterator[Metric]:
        """All metrics of this process, or the combined metrics of all processes that share a port."""
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            yield from MultiProcessCollector(CollectorRegistry()).collect()  # type: ignore[no-untyped-call]
            yield from self.collect()
        else:
            yield from self._registry.collect()
            yield from REGISTRY.collect()
