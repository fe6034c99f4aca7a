"""Starting, receiving from and killing one child process, on the side of the worker.

The worker starts the guardian, which starts the process that runs user code. Signals go to that process and its group;
the guardian's end says that it is dead, and whatever it started too.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict
from typing import Any

import orjson

from holdfast.domain.execution import ChildLimits, ExecutorContext
from holdfast.executors.frames import Unframer, frame
from holdfast.executors.shared_state import make_shared_state
from holdfast.observe.capture import shared_format

POLL_EVERY = 0.1
LEAVE_WITHIN = 5.0
# A guardian that takes longer than this to clean up after a kill is killed itself.
CLEAN_UP_WITHIN = 10.0


class Spawned(asyncio.Protocol):
    """A child process and its socket. `heard` gets each message, `gone` the exit code, once, when it is dead."""

    def __init__(
        self,
        place: ExecutorContext,
        limits: ChildLimits,
        heard: Callable[[list[Any]], None],
        gone: Callable[[int], None],
    ) -> None:
        self._heard = heard
        self._gone = gone
        self._unframer = Unframer()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.WriteTransport | None = None
        self._killing = threading.Lock()
        self._reaped = False
        self._closing = False
        self.dead = False
        form = shared_format()
        self._settings = {
            "path": sys.path,
            "modules": place.task_modules,
            "limits": asdict(place.limits),
            "child_limits": asdict(limits),
            "transactions": place.transactions,
            "url": place.database_url,
            "log_format": tuple(form) if form is not None else None,
        }
        with ExitStack() as undo:
            self._socket, theirs = socket.socketpair()
            undo.callback(self._socket.close)
            with theirs:
                descriptor, self.state = make_shared_state()
                undo.callback(self.state.close)
                try:
                    self._process = self._start(theirs.fileno(), descriptor)
                finally:
                    os.close(descriptor)
            undo.callback(self._process.wait)
            undo.callback(self._process.kill)
            self._watch()
            undo.pop_all()

    @property
    def pid(self) -> int:
        """The process that runs user code, or the one that is about to start it."""
        return self.state.runner or self._process.pid

    @staticmethod
    def _start(channel: int, state: int) -> subprocess.Popen[bytes]:
        """Start it in its own session, so that no signal of a terminal reaches it.

        It has none of our descriptors but the two it is handed, and the default signal handlers.
        """
        form = shared_format()
        arguments = [channel, state, os.getpid(), int(form is not None), int(form is not None and form.json)]
        command = [sys.executable, "-u", "-m", "holdfast.executors.guardian", *map(str, arguments)]
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=2, pass_fds=(channel, state), start_new_session=True
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
            self._pidfd = os.pidfd_open(self._process.pid)
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
            code = self._process.wait()
            if (status := self.state.status) is not None:
                code = os.waitstatus_to_exitcode(status)
            else:
                # The guardian was killed: the process that runs user code dies with it, and its group has to follow.
                self._signal_runner(signal.SIGKILL)
            self._reaped = True
        self._drain()
        self.hear_kept()
        if self._transport is not None:
            self._transport.abort()
        else:
            self._socket.close()
        self.state.close()
        self._loop.call_soon(self._gone, code)

    def hear_kept(self) -> None:
        """Receive the results that the child has not sent yet: it may be stuck or suspended while sending."""
        with suppress(ValueError):  # user code may have overwritten it; then nothing was stored
            for line in self.state.kept():
                self._heard(orjson.loads(line))

    def _drain(self) -> None:
        with suppress(OSError, ValueError):
            while data := self._socket.recv(1 << 16):
                self.data_received(data)

    def signal(self, number: int) -> None:
        """Signal the process that runs user code and its group. Safe from any thread, and harmless once it is dead."""
        with self._killing:
            if not self._reaped:
                self._signal_runner(number)

    def _signal_runner(self, number: int) -> None:
        runner = self.state.runner
        if runner is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            try:
                os.killpg(runner, number)
            except ProcessLookupError:  # it has not created its group yet
                os.kill(runner, number)

    def kill(self) -> None:
        """Kill it and whatever it started. Safe from any thread."""
        with self._killing:
            if self._reaped:
                return
            self._signal_runner(signal.SIGKILL)
            with suppress(ProcessLookupError, PermissionError):
                # Without a runner there is nothing to clean up. A suspended guardian has to be resumed.
                self._process.send_signal(signal.SIGKILL if self.state.runner is None else signal.SIGCONT)
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._loop.call_later, CLEAN_UP_WITHIN, self._kill_guardian)

    def _kill_guardian(self) -> None:
        with self._killing:
            if not self._reaped:
                self._process.kill()

    def close(self) -> None:
        """Let it go: it ends by itself when it sees that the socket is closed, or is made to."""
        self._closing = True
        if self._transport is not None:
            self._transport.close()
        self._loop.call_later(LEAVE_WITHIN, self.kill)
