"""Users of the embedded server in separate processes, and checks of what they leave behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg

from holdfast.embedded import locks
from holdfast.embedded.places import Places

# Prints the address of the server, waits for a line on stdin, leaves the server, and prints that it did.
USER = """
import sys
from pathlib import Path
from holdfast.embedded import ensure_running
server = ensure_running(Path(sys.argv[1]), durable=False)
print(server.url, flush=True)
sys.stdin.readline()
server.release()
print("left", flush=True)
"""


def python(code: str, *arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def leave(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert line(process) == "left"


def postmaster(home: Path) -> int:
    return int(Places(home).data.joinpath("postmaster.pid").read_text().splitlines()[0])


def runs(home: Path) -> bool:
    return locks.is_held(Places(home).server_lock)


def execute(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(statement)
        return found.fetchall() if found.description else []
