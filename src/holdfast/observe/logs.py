"""Logs: events as lines on standard error, as JSON or, on a terminal, for people.

Every line about a run has `run_id`, `payload_hash`, `worker_id`, `status` and `attempt_count`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TextIO

from holdfast.domain.reasons import ReasonCode
from holdfast.observe import subscribe
from holdfast.observe.lines import LEVELS, Lines, LogFormat, to_stream

# The level of each event; events not listed here have the level info.
_LOUDNESS = {
    "run.claimed_inline": "debug",
    "run.settled_inline": "debug",
    "run.submitted": "debug",
    "request.failed": "error",
    "request.refused": "warning",
    "run.lost": "warning",
    "run.refused": "warning",
    "run.policy_unreadable": "warning",
    "lease.returned": "warning",
    "hand_over.unreadable": "warning",
    "result.refused": "error",
    "exchange.refused": "error",
    "rescue.failed": "error",
    "upkeep.failed": "error",
    "upkeep.postponed": "warning",
    "watch.postponed": "debug",
    "renewal.failed": "warning",
    "worker.fenced": "error",
    "worker.broken": "error",
    "worker.not_deregistered": "warning",
    "database.away": "warning",
    "listener.lost": "warning",
    "listener.blocked": "warning",
    "child.failed": "warning",
}


_UNHAPPY = ("FAILED", "PENDING")
_EXCUSED = (ReasonCode.HANDED_BACK,)
_NAMES = {number: name for name, number in LEVELS.items()}


def level_of(event: str) -> int:
    return LEVELS[_LOUDNESS.get(event, "info")]


def open_lines(json: bool | None = None, level: str = "info", stream: TextIO | None = None) -> Lines:
    """Return lines on `stream` (standard error), as JSON or for people; None means JSON unless it is a terminal."""
    stream = stream or sys.stderr
    terminal = stream.isatty()
    form = LogFormat(json=not terminal if json is None else json, colour=terminal, level=level)
    return Lines(form, to_stream(stream))


def write_events(lines: Lines) -> Callable[[], None]:
    """Write each event as a line. Call the returned function to stop."""
    least = lines.least

    def write(event: str, fields: dict[str, Any]) -> None:
        level = level_of(event)
        if event == "run.settled" and fields["status"] in _UNHAPPY and fields.get("reason") not in _EXCUSED:
            level = LEVELS["warning"]
        lines.write(_NAMES[level], event, fields)

    return subscribe(write, lambda event: level_of(event) >= least)
