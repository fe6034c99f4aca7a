"""Keep programs running: the supervisor of `holdfast up`.

Each program is a `holdfast` command in a separate process. A program that ends is restarted, after a pause that grows
while it keeps ending. SIGTERM or SIGINT stops all programs; a second signal kills them. They also stop if the
supervisor is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic

from holdfast.processes.family import kill_family, loop_signals

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
# After this long a program counts as healthy, and the pause before its next restart is short again.
HEALTHY_SECONDS = 30.0

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Program:
    """A command to keep running: its display name, and the arguments of `holdfast`. It ends with its parent."""

    name: str
    arguments: tuple[str, ...]

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "holdfast", *self.arguments, "--with-parent", str(os.getpid())]


def keep_running(programs: Sequence[Program], *, grace: float, tell: Tell) -> None:
    """Run the programs until SIGTERM or SIGINT; `grace` is how long they may take to stop."""
    asyncio.run(Supervisor(programs, grace, tell).serve())


class Supervisor:
    """Starts, restarts and stops programs."""

    def __init__(self, programs: Sequence[Program], grace: float, tell: Tell) -> None:
        self.programs = programs
        self._grace = grace
        self._tell = tell
        self._stopping = asyncio.Event()
        self._killing = asyncio.Event()

    async def serve(self) -> None:
        """Keep all programs running until `stop` is called; return once all have ended."""
        with loop_signals(self.stop):
            async with asyncio.TaskGroup() as group:
                for program in self.programs:
                    group.create_task(self._keep(program))

    def stop(self) -> None:
        """Stop all programs; on a second call, kill them."""
        if self._stopping.is_set():
            self._killing.set()
        else:
            self._tell("stopping; runs that cannot finish soon are handed back")
        self._stopping.set()

    async def _keep(self, program: Program) -> None:
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            started = monotonic()
            code = await self._run(program)
            if self._stopping.is_set():
                return
            if monotonic() - started > HEALTHY_SECONDS:
                pause = FIRST_PAUSE
            self._tell(f"{program.name} ended ({_describe(code)}); it will be restarted in {pause:g} s")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _run(self, program: Program) -> int:
        """Start the program and wait until it ends. After `stop`, it ends within the grace period."""
        # A separate process group, so that only the supervisor receives Ctrl-C and stops the programs in order.
        process = await asyncio.create_subprocess_exec(
            *program.command, stdin=asyncio.subprocess.DEVNULL, process_group=0
        )
        exited = asyncio.create_task(process.wait())
        try:
            await self._first(exited, self._stopping)
            if not exited.done():
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                await self._first(exited, self._killing, seconds=self._grace)
        finally:
            if not exited.done():
                kill_family(process.pid)
            # Processes that it started and left behind are in its group.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        return await exited

    async def _first(self, exited: asyncio.Task[int], event: asyncio.Event, seconds: float | None = None) -> None:
        """Wait for a process to end, for an event, or for the timeout."""
        happening = asyncio.create_task(event.wait())
        try:
            await asyncio.wait({exited, happening}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            happening.cancel()


def _describe(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
