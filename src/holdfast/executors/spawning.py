"""Starting and killing one child process, and receiving its results, in the worker.

The worker starts the guardian, which starts the process that runs user code. Signals go to that process and its group.
Once the guardian has exited, that process and everything it started are dead.
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
from holdfast.executors.forked import EarlyChild, Forked
from holdfast.executors.shared_state import make_shared_state
from holdfast.executors.worker_channel import SocketWorkerChannel, WorkerChannel
from holdfast.observe.capture import shared_format

POLL_EVERY = 0.1
LEAVE_WITHIN = 5.0
# A guardian that takes longer than this to clean up after a kill is killed itself.
CLEAN_UP_WITHIN = 10.0


class Spawned:
    """A child process and the worker's end of its channel.

    `received` gets each message, `gone` the exit code, once, when the process is dead.
    """

    def __init__(
        self,
        context: ExecutorContext,
        limits: ChildLimits,
        received: Callable[[list[Any]], None],
        gone: Callable[[int], None],
        early: EarlyChild | None = None,
    ) -> None:
        self._received = received
        self._gone = gone
        self._loop = asyncio.get_running_loop()
        self._killing = threading.Lock()
        self._reaped = False
        self.dead = False
        form = shared_format()
        self._settings = {
            "path": sys.path,
            "modules": context.task_modules,
            "limits": asdict(context.limits),
            "child_limits": asdict(limits),
            "transactions": context.transactions,
            "url": context.database_url,
            "log_format": tuple(form) if form is not None else None,
        }
        self._process: subprocess.Popen[bytes] | Forked
        with ExitStack() as undo:
            if early is not None:
                self._process, ours, self.state = early
            else:
                ours, theirs = socket.socketpair()
                undo.callback(ours.close)
                with theirs:
                    descriptor, self.state = make_shared_state()
                    undo.callback(self.state.close)
                    try:
                        self._process = self._start(theirs.fileno(), descriptor)
                    finally:
                        os.close(descriptor)
            # A child whose channel is lost can no longer be used, whatever its state.
            self.channel: WorkerChannel = SocketWorkerChannel(ours, received, self.kill)
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
        """Start it in its own session, so that no signals from a terminal reach it.

        It inherits only these two of our descriptors, and has the default signal handlers.
        """
        form = shared_format()
        arguments = [channel, state, os.getpid(), int(form is not None), int(form is not None and form.json)]
        command = [sys.executable, "-u", "-m", "holdfast.executors.guardian", *map(str, arguments)]
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=2, pass_fds=(channel, state), start_new_session=True
        )

    async def open(self) -> None:
        await self.channel.open()
        self.channel.send([["settings", self._settings]])

    def _watch(self) -> None:
        """Detect its death even if a process that it started keeps the channel open."""
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
        # Its last messages may not have been read yet: let the loop read them first.
        self._loop.call_soon(self._loop.call_soon, self._reap)

    def _reap(self) -> None:
        with self._killing:
            code = self._process.wait()
            if (status := self.state.status) is not None:
                code = os.waitstatus_to_exitcode(status)
            else:
                # The guardian was killed. The process that runs user code dies with it; its group must be killed.
                self._signal_runner(signal.SIGKILL)
            self._reaped = True
        self.channel.receive_rest()
        self.receive_kept()
        self.channel.abort()
        self.state.close()
        self._loop.call_soon(self._gone, code)

    def receive_kept(self) -> None:
        """Receive the results that the child has not sent yet: it may be stuck or suspended while sending."""
        with suppress(ValueError):  # user code may have overwritten it; then nothing was stored
            for line in self.state.kept():
                self._received(orjson.loads(line))

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
        """Kill it and everything it started. Safe from any thread."""
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
        """Close the channel: the process then exits by itself, or is killed after a while."""
        self.channel.close()
        self._loop.call_later(LEAVE_WITHIN, self.kill)
