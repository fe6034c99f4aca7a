"""The log of a process that is ours alone: events, and whatever it prints, logs and warns about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.observe.capture import About, Output, capture, share_format, shared_format
from holdfast.observe.logs import open_lines, write_events

# Whether lines are JSON; None leaves it to whether standard error is a terminal.
FORMATS = {"auto": None, "json": True, "pretty": False}


def _no_run() -> None:
    return None


def log_events(log_format: str, level: str) -> Callable[[], None]:
    """Write events to standard error from now on, here and in the processes that are started; returns what ends it."""
    lines = open_lines(FORMATS[log_format], level)
    before = shared_format()
    share_format(lines.form)
    stop = write_events(lines)

    def undo() -> None:
        stop()
        share_format(before)

    return undo


@contextmanager
def process_log(log_format: str, level: str, about: About = _no_run) -> Iterator[Output]:
    """Write events, and everything else that this process says, to standard error; `about` names the run at hand."""
    output = Output(open_lines(FORMATS[log_format], level), about)
    undo_events = log_events(log_format, level)
    undo_capture = capture(output)
    try:
        yield output
    finally:
        undo_capture()
        undo_events()
