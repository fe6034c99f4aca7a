"""Runs a program in a session of its own and ends everything in it: `python -m holdfast.raycore.guard PROGRAM …`.

A Ray head consists of a dozen processes that outlive their parent, and `ray stop` ends every Ray on the machine. The
guard ends exactly the processes of its session: when its standard input is closed, which happens when the process that
started it dies, and when the program ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

ROUNDS = 50


def session_of(leader: int) -> list[int]:
    """The processes of the session that this process began, without those that have ended."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                fields = (entry / "stat").read_text("utf-8").rpartition(")")[2].split()
                if int(fields[3]) == leader and fields[0] != "Z":
                    found.append(int(entry.name))
    return found


def end_session(leader: int, but: int | None = None) -> None:
    """Kill the processes of a session, except one."""
    for _ in range(ROUNDS):
        members = [member for member in session_of(leader) if member != but]
        for member in members:
            with suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        if not members:
            return
        time.sleep(0.1)


def main(command: list[str]) -> int:
    me = os.getpid()
    program = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def follow() -> None:
        sys.stdin.read()
        end_session(me, but=me)

    threading.Thread(target=follow, daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end_session(me, but=me))
    code = program.wait()
    end_session(me, but=me)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
