"""Frames between a worker and its children: a length of four bytes, then a JSON list of messages.

Many messages travel in one frame when runs are tiny. A message is a list that begins with its kind.

    to a child    settings  modules, limits, how to open a run's own transaction; always first
                  runs      a worker's id, the index of the first run, and the runs
                  stop      a run has to stop: "cancel" or "timeout", and a sentence
                  withdraw  give back what has not begun
                  answer, refused   to a question
    from a child  ready, broken     after the settings
                  ok, failed, stopped, settled    how the run with this index ended; with ok come the runs it adds
                  progress, log, extend           on the way
                  ask       a question: steps, children, storing a result
                  withdrawn indexes of runs that have not begun and never will here, in answer to withdraw
                  unbegun   the same, unasked
                  retire    it is worn, in which way, and begins no more runs
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

_LENGTH = struct.Struct("!I")


def frame(messages: Sequence[Any]) -> bytes:
    text = orjson.dumps(messages)
    return _LENGTH.pack(len(text)) + text


class Unframer:
    """Puts frames together again from whatever pieces arrive."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """The messages that are complete now."""
        self._data += data
        while len(self._data) >= 4:
            (length,) = _LENGTH.unpack_from(self._data)
            end = 4 + length
            if len(self._data) < end:
                return
            messages = orjson.loads(memoryview(self._data)[4:end].tobytes())
            del self._data[:end]
            yield from messages


def read_frame(source: socket.socket) -> Any | None:
    """The next frame's messages, or None when the other end is gone."""
    head = _read(source, 4)
    if head is None:
        return None
    (length,) = _LENGTH.unpack(head)
    text = _read(source, length)
    return orjson.loads(text) if text is not None else None


def _read(source: socket.socket, length: int) -> bytearray | None:
    data = bytearray(length)
    rest = memoryview(data)
    while rest:
        try:
            got = source.recv_into(rest)
        except ConnectionError:
            return None
        if not got:
            return None
        rest = rest[got:]
    return data
