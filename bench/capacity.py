"""What the figures mean for capacity: here, on a large server on paper, and beyond one server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.goals import Outcomes, column, middle

DAY = 86_400
# A large server, on paper.
CORES = 64
SHARE = 0.5
LOG_MEGABYTES = 300


def text(name: str) -> str:
    """A part of the page as it was written, with places for figures."""
    return (Path(__file__).parent / "page" / f"{name}.md").read_text()


def capacity(made: Mapping[str, Any], outcomes: Outcomes) -> str:
    lifecycle = middle(column(outcomes.get("drain-1"), "holdfast", "lifecycle"))
    server = middle(column(outcomes.get("drain-1"), "holdfast", "server_us"))
    bulk = middle(column(outcomes.get("submit-bulk"), "holdfast", "rate"))
    log = middle(column(outcomes.get("wal"), "holdfast", "bytes"))
    process = middle(column(outcomes.get("drain-process"), "holdfast-process", "rate"))
    if not (lifecycle and server and bulk and log and process):
        return ""
    # Submitting costs the server at most what it costs all together.
    per_run = server.middle + 1e6 / bulk.middle
    by_cores = CORES * SHARE * 1e6 / per_run
    by_log = LOG_MEGABYTES * 1e6 / log.middle
    return text("capacity").format(
        cores=made["machine"]["cores"],
        lifecycle=lifecycle.middle,
        lifecycle_day=lifecycle.middle * DAY / 1e6,
        process=process.middle,
        process_day=process.middle * DAY / 1e6,
        per_run=per_run,
        log=log.middle,
        large=CORES,
        log_speed=LOG_MEGABYTES,
        by_cores=by_cores,
        by_log=by_log,
        paper_day=min(by_cores, by_log) / 10 * DAY / 1e9,
    )
