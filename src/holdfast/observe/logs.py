"""Logs: events as lines on standard error, as JSON or, on a terminal, for people.

Every line about a run has `run_id`, `payload_hash`, `worker_id`, `status` and `attempt_count`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, MutableMapping
from typing import Any, TextIO

import structlog

from holdfast.observe import subscribe

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

# How loud an event is; what is not listed here is information.
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
    "ending.refused": "error",
    "turn.refused": "error",
    "rescue.failed": "error",
    "upkeep.failed": "error",
    "upkeep.postponed": "warning",
    "watch.postponed": "debug",
    "renewal.failed": "warning",
    "worker.fenced": "error",
    "worker.broken": "error",
    "worker.left_silently": "warning",
    "database.away": "warning",
    "listener.lost": "warning",
    "listener.deaf": "warning",
    "child.failed": "warning",
}


_UNHAPPY = ("FAILED", "PENDING")
_EXCUSED = ("handed-back",)
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}


def level_of(event: str) -> int:
    return LEVELS[_LOUDNESS.get(event, "info")]


def _on_one_line(_: Any, __: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """What user code says must not be able to fake lines, or to steer the terminal."""
    for name, value in fields.items():
        if isinstance(value, str) and not value.isprintable():
            fields[name] = value.translate(_CONTROL)
    return fields


def configure_logging(
    json: bool | None = None, level: str = "info", stream: TextIO | None = None
) -> Callable[[], None]:
    """Write events to `stream` (standard error) from now on; call what is returned to stop.

    `json` decides the form; None means JSON unless the stream is a terminal.
    """
    stream = stream or sys.stderr
    terminal = stream.isatty()
    form: Any = (
        structlog.processors.JSONRenderer()
        if (not terminal if json is None else json)
        else structlog.dev.ConsoleRenderer(colors=terminal)
    )
    least = LEVELS[level]
    log = structlog.wrap_logger(
        structlog.PrintLogger(stream),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            _on_one_line,
            form,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        cache_logger_on_first_use=True,
    )

    def write(event: str, fields: dict[str, Any]) -> None:
        level = level_of(event)
        if event == "run.settled" and fields["status"] in _UNHAPPY and fields.get("reason") not in _EXCUSED:
            level = logging.WARNING
        log.log(level, event, **fields)

    return subscribe(write, lambda event: level_of(event) >= least)
