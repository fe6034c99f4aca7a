"""Starting, hearing and killing one child process, seen from the worker."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import orjson

from holdfast.domain.execution import Place
from holdfast.executors.frames import Unframer, frame
from holdfast.executors.mark import make_mark

POLL_EVERY = 0.1
LEAVE_WITHIN = 5.0


class Spawned(asyncio.Protocol):
    """A child process and its socket. `heard` gets each message, `gone` the exit code, once, when it is dead."""

    def __init__(self, place: Place, heard: Callable[[list[Any]], None], gone: Callable[[int], None]) -> None:
        self._heard = heard
        self._gone = gone
        self._unframer = Unframer()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.WriteTransport | None = None
        self._killing = threading.Lock()
        self._reaped = False
        self._closing = False
        self.dead = False
        ours, theirs = socket.socketpair()
        descriptor, self.mark = make_mark()
        try:
            self._process = self._start(theirs.fileno(), descriptor)
        except OSError:
            ours.close()
            self.mark.close()
            raise
        finally:
            theirs.close()
            os.close(descriptor)
        self.pid = self._process.pid
        self._watch()
        self._socket = ours
        self._settings = {
            "path": sys.path,
            "modules": place.task_modules,
            "limits": asdict(place.limits),
            "transactions": place.transactions,
            "url": place.database_url,
        }

    @staticmethod
    def _start(channel: int, mark: int) -> subprocess.Popen[bytes]:
        """Start it in a session of its own, so that it and whatever it starts can be signalled together.

        It has none of our descriptors but the two it is handed, and the default signal handlers.
        """
        command = [sys.executable, "-u", "-m", "holdfast.executors.child", str(channel), str(mark), str(os.getpid())]
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=2, pass_fds=(channel, mark), start_new_session=True
        )

    async def open(self) -> None:
        transport, _ = await self._loop.create_connection(lambda: self, sock=self._socket)
        self._transport = transport
        self.send([["settings", self._settings]])

    def send(self, messages: list[Any]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(messages))

    def data_received(self, data: bytes) -> None:
        for message in self._unframer.feed(data):
            self._heard(message)

    def connection_lost(self, error: Exception | None) -> None:
        # Code that closed the socket cannot be talked to any more; what it does is lost either way.
        if not self._closing:
            self.kill()

    def _watch(self) -> None:
        """Notice its death even if something it started holds the socket open."""
        if hasattr(os, "pidfd_open"):
            self._pidfd = os.pidfd_open(self.pid)
            self._loop.add_reader(self._pidfd, self._died)
        else:
            self._loop.call_later(POLL_EVERY, self._look)

    def _look(self) -> None:
        if self._process.poll() is None:
            self._loop.call_later(POLL_EVERY, self._look)
        else:
            self._died()

    def _died(self) -> None:
        self.dead = True
        if hasattr(self, "_pidfd"):
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        # What it said last may still lie in the socket: let the loop read that first.
        self._loop.call_soon(self._loop.call_soon, self._reap)

    def _reap(self) -> None:
        with self._killing:
            # Whatever it started goes with it. Until the wait its number belongs to nobody else; afterwards it may.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            code = self._process.wait()
            self._reaped = True
        self._drain()
        with suppress(ValueError):  # user code may have written over it; then nothing was kept
            for line in self.mark.kept():
                self._heard(orjson.loads(line))
        if self._transport is not None:
            self._transport.abort()
        else:
            self._socket.close()
        self.mark.close()
        self._loop.call_soon(self._gone, code)

    def _drain(self) -> None:
        with suppress(OSError, ValueError):
            while data := self._socket.recv(1 << 16):
                self.data_received(data)

    def signal(self, number: int) -> None:
        """Signal it and whatever it started. Safe from any thread, and harmless once it is dead."""
        with self._killing:
            if not self._reaped:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def close(self) -> None:
        """Let it go: it ends by itself when it sees that the socket is closed, or is made to."""
        self._closing = True
        if self._transport is not None:
            self._transport.close()
        self._loop.call_later(LEAVE_WITHIN, self.kill)
