"""The guardian of a child: the process that a worker starts, and the parent of the one that runs user code.

    worker ── guardian ── runner ── whatever user code starts

The runner dies with its guardian, and the guardian outlives its worker only to clean up: as the subreaper of its
descendants it adopts every orphan among them, also those that have a session of their own or were forked twice, so
none can leave its sight. When the runner has ended, or the worker is gone, it kills all of them, and only then does it
end itself. So whoever sees the guardian dead knows that nothing of the attempt is left.

It is the runner's own interpreter before the fork: it imports next to nothing, and shares most of its memory.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import suppress
from time import monotonic, sleep

from holdfast.executors.mark import Mark

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
# The kernel reports the worker's death at once; where it cannot, this is how often to look.
LOOK_EVERY = 0.5
END_WITHIN = 5.0
PAUSE = 0.005
# A pipe that can be written to takes this much without blocking.
AT_ONCE = 4096
LONGEST = 1 << 16
FINISH_WITHIN = 1.0


def main() -> None:
    channel, state, worker, as_lines = map(int, sys.argv[1:5])
    _control(PR_SET_CHILD_SUBREAPER, 1)
    _control(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != worker:
        return
    mark = Mark(state)
    os.close(state)
    guardian = os.getpid()
    raw = os.pipe() if as_lines else None
    runner = os.fork()
    if not runner:
        os.setsid()
        log = os.dup(2)
        if raw is not None:
            _write_to(raw)
        _control(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guardian:
            return
        from holdfast.executors import child

        child.main(channel, mark, log)
        return
    mark.runner = runner
    os.close(channel)
    output = RawOutput(raw, mark) if raw is not None else None
    status = _wait(runner, worker, output)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(runner, signal.SIGKILL)
    _end_descendants()
    if output is not None:
        output.finish()
    mark.status = status
    os._exit(0)


def _control(option: int, value: int) -> None:
    """Ask the kernel for this; where it does not know how, looking has to do."""
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _write_to(raw: tuple[int, int]) -> None:
    """Have what this process and its descendants write to standard output and standard error go into the pipe."""
    for descriptor in (1, 2):
        os.dup2(raw[1], descriptor)
    for descriptor in raw:
        os.close(descriptor)


class RawOutput:
    """What native code, and programs that a task started, write to the descriptors 1 and 2: lines of the log as well.

    The guardian reads it because it outlives the runner: the last words of a crash are not lost. It writes only when
    the log takes something, so that a log that nobody reads cannot keep it from its work.
    """

    def __init__(self, raw: tuple[int, int], mark: Mark) -> None:
        self.source = raw[0]
        self._mark = mark
        self._begun = b""
        self._lines = b""
        self.open = True
        os.close(raw[1])
        os.set_blocking(self.source, False)

    @property
    def waiting(self) -> bool:
        """Whether there are lines that have not been written."""
        return bool(self._lines)

    def read(self) -> bool:
        """Take what was written. False if that is nothing, now or for good: all writers may have closed their end."""
        try:
            data = os.read(self.source, AT_ONCE)
        except BlockingIOError:
            return False
        self.open = bool(data)
        *complete, self._begun = (self._begun + data).split(b"\n")
        if len(self._begun) > LONGEST or (self._begun and not data):
            complete.append(self._begun)
            self._begun = b""
        self._lines += b"".join(map(self._line, filter(None, complete)))
        return self.open

    def _line(self, raw: bytes) -> bytes:
        from holdfast.observe.lines import Lines, LogFormat

        made: list[str] = []
        run = self._mark.run()
        fields = {"run_id": run[0], "status": "RUNNING", "attempt_count": run[1]} if run is not None else {}
        fields |= {"message": raw.decode("utf-8", "backslashreplace").rstrip("\r"), "stream": "raw"}
        Lines(LogFormat(), made.append).write("info", "run.printed" if run is not None else "printed", fields)
        return made[0].encode()

    def write(self) -> None:
        """Write as much as the log takes at once."""
        with suppress(OSError):  # whoever read the log is gone
            written = os.write(2, self._lines[:AT_ONCE])
            self._lines = self._lines[written:]
            return
        self._lines = b""

    def finish(self) -> None:
        """Write what is left; all writers are dead."""
        ends = monotonic() + FINISH_WITHIN
        while monotonic() < ends:
            more = self.open and self.read()
            while self._lines and monotonic() < ends:
                if select.select([], [2], [], ends - monotonic())[1]:
                    self.write()
            if not more:
                return


def _wait(runner: int, worker: int, output: RawOutput | None) -> int:
    """Wait until the runner has ended, and see to it that it does once the worker is gone."""
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
                os.kill(runner, signal.SIGTERM)  # meant for both, whichever of them it was sent to


def _pass_on(signals: int, output: RawOutput | None) -> None:
    """Wait for a signal, or until it is time to look again; pass on what was written in the meantime."""
    if output is not None and output.waiting:
        if select.select([signals], [2], [], LOOK_EVERY)[1]:
            output.write()
    elif output is None or not output.open:
        select.select([signals], [], [], LOOK_EVERY)
    elif output.source in select.select([signals, output.source], [], [], LOOK_EVERY)[0]:
        output.read()


def _reap(runner: int) -> int | None:
    """Reap what has ended; the status of the runner if it is among them."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == runner:
                return ended[1]
    return None


def _end_descendants() -> None:
    """Kill all descendants, and those that they leave to us, until none is left that may be killed."""
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
    from holdfast.processes import family

    return family(os.getpid())[1:]


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


if __name__ == "__main__":
    main()
