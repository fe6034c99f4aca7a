"""The channel between a worker and a child process, and the messages that it carries.

A frame is a JSON list of messages; many messages share a frame when runs are tiny. A message is a list that begins
with its kind. Any transport works that delivers frames completely and in order: the process executor uses a socket
pair, where each frame is preceded by its length in four bytes.

    to the child    settings  modules, limits, how to open a run's own transaction; always first
                    runs      the worker's id, the index of the first run, and the runs
                    stop      an attempt has to stop: the reason and the message of the LeaseRequest
                    withdraw  return the runs that have not begun
                    answer, refused   the response to a question
    from the child  loaded    names of its tasks and its environment; first, and only from a child that is forked early
                    ready, broken     the response to the settings
                    ok, failed, stopped, handed back, settled
                              how the run with this index ended; ok includes the runs that it adds
                    progress, log, extend           notes of a run
                    ask       a question of a run: steps, children, storing a result
                    withdrawn indexes of runs that have not begun and will not, in response to withdraw
                    unbegun   the same, unrequested
                    retire    why the child has to be replaced; it begins no more runs
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any, Protocol

import orjson

from holdfast.domain.values import Dependency, NewRun

_LENGTH = struct.Struct("!I")


class Channel(Protocol):
    """The child's end. Threads of the child share it: one of them receives, and senders use their own lock."""

    def send(self, messages: Sequence[Any]) -> None:
        """Send one frame. Raise OSError if the worker is gone."""

    def receive(self) -> list[Any] | None:
        """Wait for the next frame and return its messages; None once the worker is gone."""


def frame(messages: Sequence[Any]) -> bytes:
    text = orjson.dumps(messages)
    return _LENGTH.pack(len(text)) + text


class Unframer:
    """Assembles frames from the data that arrives."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """Return the messages that are complete now."""
        self._data += data
        while len(self._data) >= 4:
            (length,) = _LENGTH.unpack_from(self._data)
            end = 4 + length
            if len(self._data) < end:
                return
            messages = orjson.loads(memoryview(self._data)[4:end].tobytes())
            del self._data[:end]
            yield from messages


class SocketChannel:
    """The child's end of a socket pair."""

    def __init__(self, source: socket.socket) -> None:
        self._socket = source

    def send(self, messages: Sequence[Any]) -> None:
        self._socket.sendall(frame(messages))

    def receive(self) -> list[Any] | None:
        head = self._read(4)
        if head is None:
            return None
        (length,) = _LENGTH.unpack(head)
        text = self._read(length)
        messages: list[Any] | None = orjson.loads(text) if text is not None else None
        return messages

    def _read(self, length: int) -> bytearray | None:
        data = bytearray(length)
        rest = memoryview(data)
        while rest:
            try:
                got = self._socket.recv_into(rest)
            except ConnectionError:
                return None
            if not got:
                return None
            rest = rest[got:]
        return data


def sent_run(new: NewRun) -> dict[str, Any]:
    """Return a new run as JSON, without its name: it is created once, when the run that adds it succeeds."""
    options = sent_options({field.name: getattr(new, field.name) for field in fields(new) if field.name != "known_as"})
    return options | {"depends_on": [list(dependency) for dependency in new.depends_on]}


def received_run(sent: Mapping[str, Any]) -> NewRun:
    options = received_options(sent)
    depends_on = tuple(Dependency(*dependency) for dependency in sent["depends_on"])
    return NewRun(**{**options, "tags": tuple(sent["tags"]), "depends_on": depends_on})


def sent_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of `submit` as JSON: durations and times as objects that name their kind."""

    def plain(value: Any) -> Any:
        if isinstance(value, timedelta):
            return {"seconds": value.total_seconds()}
        if isinstance(value, datetime):
            return {"at": value.isoformat()}
        return value

    return {name: plain(value) for name, value in options.items()}


def received_options(options: Mapping[str, Any]) -> dict[str, Any]:
    def real(value: Any) -> Any:
        match value:
            case {"seconds": float() | int() as seconds}:
                return timedelta(seconds=seconds)
            case {"at": str() as text}:
                return datetime.fromisoformat(text)
            case _:
                return value

    return {name: real(value) for name, value in options.items()}
