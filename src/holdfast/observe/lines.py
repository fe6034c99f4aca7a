"""Log lines: how an event is formatted, as JSON or for people, and where it is written."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple, TextIO

import orjson

from holdfast.domain.masking import mask_secrets

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


class LogFormat(NamedTuple):
    """The format of lines, and the lowest level that is written. It is passed to child processes."""

    json: bool = True
    colour: bool = False
    level: str = "info"


class Lines:
    """Writes events as lines, each with a single write."""

    def __init__(self, form: LogFormat, write: Callable[[str], object]) -> None:
        self.form = form
        self._write = write
        self._kept = "\n\t" if form.json else ""
        self._console: Callable[..., Any] | None = None

    @property
    def least(self) -> int:
        return LEVELS[self.form.level]

    def write(self, level: str, event: str, fields: Mapping[str, Any]) -> None:
        kept = self._kept
        made = {name: visible(value, kept) if isinstance(value, str) else value for name, value in fields.items()}
        made["event"], made["level"] = event, level
        made["at"] = f"{datetime.now(UTC).replace(tzinfo=None).isoformat()}Z"
        self._write((_as_json(made) if self.form.json else self._for_people(made)) + "\n")

    def _for_people(self, fields: dict[str, Any]) -> str:
        if self._console is None:
            import structlog

            self._console = structlog.dev.ConsoleRenderer(colors=self.form.colour, timestamp_key="at")
        return str(self._console(None, fields["level"], fields))


def visible(text: str, kept: str = "") -> str:
    """Return the text without passwords and control characters, which could fake lines or control a terminal."""
    text = mask_secrets(text)
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in kept else one.encode("unicode_escape").decode() for one in text)


def to_stream(stream: TextIO) -> Callable[[str], object]:
    def write(line: str) -> None:
        stream.write(line)
        stream.flush()

    return write


def to_descriptor(descriptor: int) -> Callable[[str], object]:
    def write(line: str) -> None:
        data = memoryview(line.encode("utf-8", "backslashreplace"))
        with suppress(OSError):  # a log without a reader must not fail a run
            while data:
                try:
                    data = data[os.write(descriptor, data) :]
                except BlockingIOError:  # another process has made the shared descriptor non-blocking
                    select.select([], [descriptor], [])

    return write


def _as_json(fields: dict[str, Any]) -> str:
    try:
        return orjson.dumps(fields, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # a number that is too large for JSON, or an unpaired surrogate
        import json

        return json.dumps(fields, default=repr)
