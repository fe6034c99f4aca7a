"""Log what native code, and programs that a task started, write to the descriptors 1 and 2.

If the process writes a log, a pipe replaces the two descriptors. In a log for people the lines are unchanged, except
for secrets. The guardian reads the pipe, because it outlives the process that runs user code, so output before a crash
is not lost. It writes only when the log accepts data, so that a log without a reader cannot block it.
"""

from __future__ import annotations

import os
import select
from time import monotonic

from holdfast.executors.shared_state import SharedState

# A writable pipe accepts this much without blocking.
AT_ONCE = 4096
LONGEST = 1 << 16
FINISH_WITHIN = 1.0


def write_to(raw: tuple[int, int]) -> None:
    """Redirect standard output and standard error of this process and its descendants into the pipe."""
    for descriptor in (1, 2):
        os.dup2(raw[1], descriptor)
    for descriptor in raw:
        os.close(descriptor)


class RawOutput:
    """The guardian's end of the pipe, which it reads and turns into log lines."""

    def __init__(self, raw: tuple[int, int], state: SharedState, *, json: bool) -> None:
        self.source = raw[0]
        self._state = state
        self._json = json
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
        """Read from the pipe. False if there is nothing to read, for now or because all writers have closed it."""
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
        if not self._json:
            from holdfast.domain.masking import mask_secrets

            return mask_secrets(raw.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape") + b"\n"
        from holdfast.observe.lines import Lines, LogFormat

        made: list[str] = []
        run = self._state.run()
        fields = {"run_id": run[0], "status": "RUNNING", "attempt_count": run[1]} if run is not None else {}
        fields |= {"message": raw.decode("utf-8", "backslashreplace").rstrip("\r"), "stream": "raw"}
        Lines(LogFormat(), made.append).write("info", "run.printed" if run is not None else "printed", fields)
        return made[0].encode()

    def write(self) -> None:
        """Write as much as the log accepts without blocking."""
        try:
            written = os.write(2, self._lines[:AT_ONCE])
        except BlockingIOError:
            return
        except OSError:  # the log no longer has a reader
            written = len(self._lines)
        self._lines = self._lines[written:]

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
