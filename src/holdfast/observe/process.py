"""The log of a Holdfast process: events, and everything that the process prints, logs and warns about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.observe.capture import About, Output, capture, share_format, shared_format
from holdfast.observe.lines import LogFormat
from holdfast.observe.logs import open_lines, write_events

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
