"""The worker's end of the channel to a child process.

A child does not import this module, because importing asyncio would take half of its start-up time.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from holdfast.executors.channel import Unframer, frame


class WorkerChannel(Protocol):
    """The worker's end, used in its event loop. It is created with callbacks for messages and for a lost connection."""

    async def open(self) -> None:
        """Start receiving."""

    def send(self, messages: Sequence[Any]) -> None:
        """Send one frame without waiting. Do nothing before the channel is open and after it is closed."""

    def receive_rest(self) -> None:
        """Receive everything that a child sent before it died."""

    def close(self) -> None:
        """Close the channel once everything is sent. An idle child then exits."""

    def abort(self) -> None:
        """Close the channel immediately."""


class SocketWorkerChannel(asyncio.Protocol):
    """The worker's end of a socket pair."""

    def __init__(self, source: socket.socket, received: Callable[[list[Any]], None], lost: Callable[[], None]) -> None:
        self._socket = source
        self._received = received
        self._lost = lost
        self._unframer = Unframer()
        self._transport: asyncio.WriteTransport | None = None
        self._closing = False

    async def open(self) -> None:
        self._transport, _ = await asyncio.get_running_loop().create_connection(lambda: self, sock=self._socket)

    def send(self, messages: Sequence[Any]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(messages))

    def data_received(self, data: bytes) -> None:
        for message in self._unframer.feed(data):
            self._received(message)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._closing:
            self._lost()

    def receive_rest(self) -> None:
        with suppress(OSError, ValueError):
            while data := self._socket.recv(1 << 16):
                self.data_received(data)

    def close(self) -> None:
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        self._closing = True
        if self._transport is not None:
            self._transport.abort()
        else:
            self._socket.close()
