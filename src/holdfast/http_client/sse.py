"""Reading server-sent events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson


class Reader:
    """Parses lines into the data of messages; `last` is where to resume if the stream breaks."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.ended = False
        self.begin()

    def begin(self) -> None:
        """Start on a new connection: an incomplete message is discarded."""
        self._event = "message"
        self._data: list[str] = []
        self._id = self.last

    def feed(self, line: str) -> Iterator[Any]:
        """Parse a line without its line break; an empty one completes a message."""
        if not line:
            yield from self._complete()
            return
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and value.isdigit():
            self._id = int(value)

    def _complete(self) -> Iterator[Any]:
        data, event = self._data, self._event
        self._data, self._event = [], "message"
        if not data:
            return
        self.last = self._id
        if event == "end":
            self.ended = True
        else:
            yield orjson.loads("\n".join(data))
