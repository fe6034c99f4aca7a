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


def take_over_log(log_format: str, level: str, about: About = _no_run) -> tuple[Output, Callable[[], None]]:
    """Write events, and everything else that this process says, to standard error; the second ends that.

    `about` names the run that the calling code is at work for.
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
    """The same for a block. Where the log is to be JSON throughout, so is the error that ends the block."""
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
