"""Metrics of this process. Labels come from bounded sets: routes as declared, never ids."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector

if TYPE_CHECKING:
    from holdfast.http.service import Service


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
