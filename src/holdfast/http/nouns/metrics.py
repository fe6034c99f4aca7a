"""Metrics, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import CollectorRegistry, Metric

from holdfast.http import reading
from holdfast.http.answers import Answer
from holdfast.http.call import Call
from holdfast.http.openapi.parts import TEXT, operation
from holdfast.http.routes import Noun, Route
from holdfast.http.service import Service


class _Scrape:
    """One scrape: what Postgres knows of the whole system, then what this process knows of itself."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        yield from self._service.cluster.families()
        yield from self._service.meters.families()


def show(call: Call) -> Answer:
    reading.query(call)
    registry = CollectorRegistry()
    registry.register(_Scrape(call.service))
    return Answer(generate_latest(registry), kind=CONTENT_TYPE_PLAIN_0_0_4)


NOUN = Noun(
    "metrics",
    "Metrics for Prometheus.",
    [
        Route(
            "GET",
            "/metrics",
            show,
            "runs:read",
            operation(
                "getMetrics",
                "Measure everything",
                "Counters about runs are of the whole system and exact; `http_*`, `process_*` and the like are of this "
                "process. If Postgres does not answer, `metrics_db_up` is 0 and only the latter are there.",
                answers={200: {"description": "Prometheus text.", "content": {"text/plain": {"schema": TEXT}}}},
            ),
        ),
    ],
)
