"""Capture: everything that a process prints, logs and warns about becomes log lines.

Libraries, user code and Python itself write to `sys.stdout` and `sys.stderr` or use `logging`. In a process that
belongs to Holdfast (a worker, its children, the API) each such line becomes an event: `run.printed` and `run.logged`
with their run, `printed` and `logged` outside of a run. If the log is not JSON, lines outside of a run are left
unchanged.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TextIO

from holdfast.observe.lines import LEVELS, Lines, LogFormat

About = Callable[[], Mapping[str, Any] | None]

# Longer lines are split.
LONGEST = 1 << 16

_BY_NUMBER = sorted(((number, name) for name, number in LEVELS.items()), reverse=True)
_format: LogFormat | None = None
# Unfinished lines by stream and thread. Usually empty, so that the end of a run costs one lookup.
_unfinished: dict[tuple[int, int], _UnfinishedLine] = {}


def shared_format() -> LogFormat | None:
    """Return the log format of this process, for the processes that it starts; None if it writes no log."""
    return _format


def share_format(form: LogFormat | None) -> None:
    global _format
    _format = form


class Output:
    """Writes the output of user code and libraries in this process; `about` returns the run of the calling code."""

    def __init__(self, lines: Lines, about: About) -> None:
        self.lines = lines
        self._about = about

    @property
    def belongs_to_run(self) -> bool:
        return self._about() is not None

    def write(self, level: str, verb: str, fields: Mapping[str, Any]) -> None:
        run = self._about()
        self.lines.write(level, verb if run is None else f"run.{verb}", {**(run or {}), **fields})


class _UnfinishedLine:
    """An unfinished line, in the pieces in which it was written."""

    __slots__ = ("length", "pieces", "stream")

    def __init__(self, stream: LineStream, text: str) -> None:
        self.stream = stream
        self.pieces = [text]
        self.length = len(text)

    def append(self, text: str) -> bool:
        """Append text that does not end the line; return False otherwise. The pieces are joined once, at the end."""
        if self.length + len(text) > LONGEST or "\n" in text or "\r" in text:
            return False
        self.pieces.append(text)
        self.length += len(text)
        return True


class LineStream(io.TextIOBase):
    """Replaces standard output or standard error."""

    encoding: str = "utf-8"
    errors: str | None = "backslashreplace"

    def __init__(self, stream: str, output: Output, replaced: TextIO) -> None:
        self._stream = stream
        self._output = output
        self._replaced = replaced
        self._plain = not output.lines.form.json
        self.buffer = _Bytes(self)

    @property
    def name(self) -> str:
        return f"<{self._stream}>"

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._replaced.fileno()

    def isatty(self) -> bool:
        return self._plain and self._replaced.isatty()

    def flush(self) -> None:
        """Flush the original stream. Complete lines are already written, and an unfinished line waits for its end."""
        if self._plain:
            self._replaced.flush()

    def write(self, text: str) -> int:
        if self._plain and not self._output.belongs_to_run:
            return self._replaced.write(text)
        key = (id(self), threading.get_ident())
        begun = _unfinished.get(key)
        if begun is not None:
            if begun.append(text):
                return len(text)
            del _unfinished[key]
        *complete, rest = ("".join(begun.pieces if begun else ()) + text).split("\n")
        for line in complete:
            self.write_line(line)
        # Text that a terminal would overwrite, such as the steps of a progress bar, is dropped.
        rest = rest.rpartition("\r")[2] if not rest.endswith("\r") else rest
        if len(rest) > LONGEST:
            self.write_line(rest)
        elif rest:
            _unfinished[key] = _UnfinishedLine(self, rest)
        return len(text)

    def write_line(self, line: str) -> None:
        line = line.rstrip("\r").rpartition("\r")[2]
        for start in range(0, len(line), LONGEST):
            piece = line[start : start + LONGEST]
            self._output.write("info", "printed", {"message": piece, "stream": self._stream})


class _Bytes(io.RawIOBase):
    """The binary side of a stream, for `sys.stdout.buffer.write`."""

    def __init__(self, text: LineStream) -> None:
        self._text = text

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._text.fileno()

    def write(self, data: Any) -> int:
        self._text.write(bytes(data).decode("utf-8", "backslashreplace"))
        return len(data)


def end_lines() -> None:
    """Write the unfinished lines of this thread, because its run has ended."""
    if _unfinished:
        thread = threading.get_ident()
        for key in [key for key in list(_unfinished) if key[1] == thread]:
            begun = _unfinished.pop(key)
            begun.stream.write_line("".join(begun.pieces))


class LogHandler(logging.Handler):
    """Writes records of `logging` as lines."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self.output = output
        # Handlers of other loggers that would write the same records again, as printed lines.
        self.replaced: list[tuple[logging.Logger, logging.Handler]] = []

    def emit(self, record: logging.LogRecord) -> None:
        try:
            fields: dict[str, Any] = {"message": record.getMessage(), "logger": record.name}
            if record.exc_info and record.exc_info[0] is not None:
                fields["traceback"] = "".join(traceback.format_exception(*record.exc_info))
            if record.stack_info:
                fields["stack"] = record.stack_info
            self.output.write(_level_name(record.levelno), "logged", fields)
        except Exception:  # noqa: BLE001 - like every handler: a message that cannot be formatted must not stop the program
            self.handleError(record)


def _level_name(number: int) -> str:
    return next((name for least, name in _BY_NUMBER if number >= least), "debug")


def adopt_logging(output: Output) -> None:
    """Write `logging` records as lines, unless the program has configured its own format.

    Call it after the program's modules are imported. If they set a level, it is kept; else that of the log is used.
    """
    root = logging.getLogger()
    ours = [handler for handler in root.handlers if isinstance(handler, LogHandler)]
    if not all(_is_default(handler) for handler in root.handlers if handler not in ours):
        return
    for handler in root.handlers[:]:
        root.removeHandler(handler)
    adopted = LogHandler(output)
    adopted.replaced = [pair for handler in ours for pair in handler.replaced] + _doubled()
    for logger, handler in adopted.replaced:
        logger.removeHandler(handler)
    root.addHandler(adopted)
    if root.level == logging.WARNING:
        root.setLevel(output.lines.least)


def _doubled() -> list[tuple[logging.Logger, logging.Handler]]:
    """Default handlers below the root, such as Django's console: their records also reach the root."""
    loggers = [one for one in logging.Logger.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    return [(one, each) for one in loggers if _reaches_root(one) for each in one.handlers if _is_default(each)]


def _reaches_root(logger: logging.Logger) -> bool:
    while logger.parent is not None:
        if not logger.propagate:
            return False
        logger = logger.parent
    return True


def _is_default(handler: logging.Handler) -> bool:
    """Whether this is the handler that `logging.basicConfig()` or the first `logging.info()` installs."""
    form = handler.formatter
    default = form is None or getattr(form, "_fmt", None) == logging.BASIC_FORMAT
    return type(handler) is logging.StreamHandler and default


def capture(output: Output) -> Callable[[], None]:
    """Write everything that this process prints and warns about as lines. Call the returned function to stop."""
    before = sys.stdout, sys.stderr, sys.excepthook, sys.unraisablehook, threading.excepthook
    level = logging.getLogger().level
    streams = LineStream("stdout", output, sys.stdout), LineStream("stderr", output, sys.stderr)
    sys.stdout, sys.stderr = streams
    _catch_uncaught(output)
    logging.captureWarnings(True)

    def undo() -> None:
        end_lines()
        if sys.stdout is streams[0]:
            sys.stdout = before[0]
        if sys.stderr is streams[1]:
            sys.stderr = before[1]
        sys.excepthook, sys.unraisablehook, threading.excepthook = before[2:]
        logging.captureWarnings(False)
        _forget(output, streams, before[1])
        logging.getLogger().setLevel(level)

    return undo


def _forget(output: Output, streams: Iterable[LineStream], stderr: TextIO) -> None:
    """Remove the handler of this module, and restore the original streams of other handlers."""
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if isinstance(handler, LogHandler) and handler.output is output:
            root.removeHandler(handler)
            for logger, replaced in handler.replaced:
                logger.addHandler(replaced)
        elif isinstance(handler, logging.StreamHandler) and handler.stream in tuple(streams):
            handler.setStream(stderr)


def _catch_uncaught(output: Output) -> None:
    """Write each uncaught exception as one line."""

    def write(error: BaseException | None, where: str) -> None:
        trace = "".join(traceback.format_exception(error)) if error is not None else None
        name = f"{type(error).__name__}: {error}" if error is not None else "unknown"
        output.write("error", "uncaught", {"error": name, "where": where, "traceback": trace})

    def in_program(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
        else:
            write(error, "main thread")

    def in_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_type is not SystemExit:
            write(args.exc_value, args.thread.name if args.thread else "a thread")

    sys.excepthook = in_program
    threading.excepthook = in_thread
    sys.unraisablehook = lambda args: write(args.exc_value, f"{args.err_msg or 'ignored in'} {args.object!r}")
