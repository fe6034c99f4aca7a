"""Measure: everything that metrics tell about the whole system, from one place that all processes share."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.sql import gauges, outbox, tallies
from holdfast.sql.gauges import QueueGauge, Unknown, WorkerGauge
from holdfast.sql.outbox import Backlog
from holdfast.sql.statement import Op
from holdfast.sql.tallies import Tally


class Measures(NamedTuple):
    totals: dict[Tally, tuple[int, float]]
    queues: list[QueueGauge]
    unknown: list[Unknown]
    workers: list[WorkerGauge]
    outbox: Backlog


def measure() -> Op[Measures]:
    """Counters are exact over restarts and pruning; gauges are of now."""
    totals = yield from tallies.totals()
    queues = yield from gauges.queues()
    unknown = yield from gauges.unknown()
    workers = yield from gauges.workers()
    backlog = yield from outbox.backlog()
    return Measures(totals, queues, unknown, workers, backlog)
