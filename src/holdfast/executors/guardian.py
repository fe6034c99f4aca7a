"""The guardian of a child: the process that a worker starts, and the parent of the process that runs user code.

    worker ── guardian ── runner ── whatever user code starts

The runner dies with its guardian, and the guardian outlives its worker only to clean up. As the subreaper of its
descendants it adopts every orphan among them, including those that have their own session or were forked twice, so
none can escape. When the runner or the worker has ended, the guardian kills all descendants and only then exits. So
once the guardian has exited, no process of the attempt is left.

The guardian is the runner's interpreter before the fork: it imports almost nothing and shares most of its memory.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, sleep

from holdfast.executors.raw_output import RawOutput, write_to
from holdfast.executors.shared_state import SharedState

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
# How often to check whether the worker is alive on systems whose kernel does not report its death.
CHECK_EVERY = 0.5
END_WITHIN = 5.0
PAUSE = 0.005


def main() -> None:
    channel, shared, worker, has_log, json = map(int, sys.argv[1:6])
    guard(channel, shared, worker, bool(json) if has_log else None, _run_child)


def guard(
    channel: int, shared: int, worker: int, json: bool | None, run: Callable[[int, SharedState, int], None]
) -> None:
    """Start the runner, which calls `run`, and guard it. In the guardian, this function does not return.

    `json` says whether the lines of the log are JSON; None if there is no log.
    """
    _control(PR_SET_CHILD_SUBREAPER, 1)
    _control(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != worker:
        return
    state = SharedState(shared)
    os.close(shared)
    guardian = os.getpid()
    raw = os.pipe() if json is not None else None
    runner = os.fork()
    if not runner:
        os.setsid()
        log = os.dup(2)
        if raw is not None:
            write_to(raw)
        _control(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guardian:
            return
        run(channel, state, log)
        return
    state.runner = runner
    os.close(channel)
    output = RawOutput(raw, state, json=bool(json)) if raw is not None else None
    status = _wait(runner, worker, output)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(runner, signal.SIGKILL)
    _end_descendants()
    if output is not None:
        output.finish()
    state.status = status
    os._exit(0)


def _run_child(channel: int, state: SharedState, log: int) -> None:
    import socket

    from holdfast.executors import child
    from holdfast.executors.channel import SocketChannel

    child.main(SocketChannel(socket.socket(fileno=channel)), state, log)


def _control(option: int, value: int) -> None:
    """Call prctl; on systems without it, the guardian polls instead."""
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _wait(runner: int, worker: int, output: RawOutput | None) -> int:
    """Wait until the runner has ended, and kill it once the worker is gone."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    while True:
        status = _reap(runner)
        if status is not None:
            return status
        if os.getppid() != worker:
            os.kill(runner, signal.SIGKILL)
        _pass_on(read, output)
        with suppress(BlockingIOError):
            if signal.SIGTERM in os.read(read, 1024) and os.getppid() == worker:
                os.kill(runner, signal.SIGTERM)  # meant for both the guardian and the runner


def _pass_on(signals: int, output: RawOutput | None) -> None:
    """Wait for a signal or until the next check, forwarding raw output in the meantime."""
    if output is not None and output.waiting:
        if select.select([signals], [2], [], CHECK_EVERY)[1]:
            output.write()
    elif output is None or not output.open:
        select.select([signals], [], [], CHECK_EVERY)
    elif output.source in select.select([signals, output.source], [], [], CHECK_EVERY)[0]:
        output.read()


def _reap(runner: int) -> int | None:
    """Reap processes that have ended; return the status of the runner if it is among them."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == runner:
                return ended[1]
    return None


def _end_descendants() -> None:
    """Kill all descendants, including orphans that we adopt, until none is left that we may kill."""
    ends = monotonic() + END_WITHIN
    while monotonic() < ends:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        if not sum([_kill(pid) for pid in _descendants()]):
            return
        sleep(PAUSE)


def _descendants() -> list[int]:
    from holdfast.processes.family import family

    return family(os.getpid())[1:]


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


if __name__ == "__main__":
    main()
