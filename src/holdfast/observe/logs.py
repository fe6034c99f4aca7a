"""Logs: events, and everything that a process prints, logs and warns about, as lines on standard error.

Lines are JSON or, on a terminal, for people. Every line about a run has `run_id`, `payload_hash`, `worker_id`, `status`
and `attempt_count`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from holdfast.domain.reasons import ReasonCode
from holdfast.observe import subscribe
from holdfast.observe.capture import About, Output, capture, share_format, shared_format
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


# Whether lines are JSON; None means JSON unless standard error is a terminal.
FORMATS = {"auto": None, "json": True, "pretty": False}


def _no_run() -> None:
    return None


def log_format(name: str, level: str) -> LogFormat:
    """Return the format of the log on standard error, as configured."""
    return open_lines(FORMATS[name], level).form


def log_events(log_format: str, level: str) -> Callable[[], None]:
    """Write events of this process and its children to standard error. Return a function that stops it."""
    lines = open_lines(FORMATS[log_format], level)
    before = shared_format()
    share_format(lines.form)
    stop = write_events(lines)

    def undo() -> None:
        stop()
        share_format(before)

    return undo


def take_over_log(log_format: str, level: str, about: About = _no_run) -> tuple[Output, Callable[[], None]]:
    """Write events, and all other output of this process, to standard error; the second result stops it.

    `about` returns the run that the calling code belongs to.
    """
    output = Output(open_lines(FORMATS[log_format], level), about)
    undo_events = log_events(log_format, level)
    undo_capture = capture(output)

    def undo() -> None:
        undo_capture()
        undo_events()

    return output, undo


@contextmanager
def process_log(log_format: str, level: str, about: About = _no_run) -> Iterator[Output]:
    """Do the same for a block. If the log is JSON, an error that ends the block is logged as JSON too."""
    output, undo = take_over_log(log_format, level, about)
    try:
        yield output
    except Exception as error:
        if log_format == "json":
            output.write("error", "failed", {"error": f"{type(error).__name__}: {error}"})
            error.logged = True  # type: ignore[attr-defined]
        raise
    finally:
        undo()
