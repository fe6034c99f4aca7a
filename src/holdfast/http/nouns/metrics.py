"""Metrics, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import CollectorRegistry, Metric

from holdfast.http import reading
from holdfast.http.answers import Answer
from holdfast.http.call import Call
from holdfast.http.cluster import DOWN
from holdfast.http.principals import UNKNOWN
from holdfast.http.routes import Noun, Route
from holdfast.verbs.openapi import TEXT, operation


class _Scrape:
    """One scrape: what Postgres knows of the whole system, then what this process knows of itself.

    While Postgres is away nobody can be known, and nothing is told but the latter.
    """

    def __init__(self, call: Call) -> None:
        self._service = call.service
        self._stranger = call.principal is UNKNOWN

    def collect(self) -> Iterator[Metric]:
        yield from (DOWN,) if self._stranger else self._service.cluster.families()
        yield from self._service.meters.families()


def show(call: Call) -> Answer:
    reading.query(call)
    registry = CollectorRegistry()
    registry.register(_Scrape(call))
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
                "Read the metrics",
                "Counters about runs are of the whole system and exact; `http_*`, `process_*` and the like are of this "
                "process. If Postgres does not answer, `metrics_db_up` is 0 and only the latter are there.",
                answers={200: {"description": "Prometheus text.", "content": {"text/plain": {"schema": TEXT}}}},
            ),
            always=True,
        ),
    ],
)
