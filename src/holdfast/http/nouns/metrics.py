"""Metrics, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import CollectorRegistry, Metric

from holdfast.documents.shapes import TEXT
from holdfast.http.answers import Answer
from holdfast.http.call import Call
from holdfast.http.metrics import DOWN
from holdfast.http.principals import UNKNOWN
from holdfast.http.routes import Noun, route


class _Scrape:
    """One scrape: metrics of the whole system from Postgres, then those of this process.

    While Postgres is away no token can be checked, and only the latter are returned.
    """

    def __init__(self, call: Call) -> None:
        self._service = call.service
        self._stranger = call.principal is UNKNOWN

    def collect(self) -> Iterator[Metric]:
        yield from (DOWN,) if self._stranger else self._service.cluster.families()
        yield from self._service.meters.families()


@route(
    "GET /metrics",
    "runs:read",
    "getMetrics",
    "Read the metrics",
    "Counters of runs are exact and cover the whole system; `holdfast_http_*`, `process_*` and similar metrics cover "
    "only this process. If Postgres does not respond, `holdfast_metrics_db_up` is 0, and only the metrics of this "
    "process are returned.",
    answers={200: {"description": "Prometheus text.", "content": {"text/plain": {"schema": TEXT}}}},
    always=True,
)
def show(call: Call) -> Answer:
    registry = CollectorRegistry()
    registry.register(_Scrape(call))
    return Answer(generate_latest(registry), kind=CONTENT_TYPE_PLAIN_0_0_4)


NOUN = Noun("metrics", "Metrics for Prometheus.", [show])
