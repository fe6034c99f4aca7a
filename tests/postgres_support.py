"""A PostgreSQL server from the programs in a directory, for tests that need a version other than the embedded one."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Created by Debian's package: PostgreSQL refuses to run as root.
ACCOUNT = "postgres"

DEBIAN_15 = Path("/usr/lib/postgresql/15/bin")


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextmanager
def postgres(programs: Path) -> Iterator[str]:
    """A fresh server on a loopback port, without fsync; the address is that of its maintenance database."""
    directory = Path(tempfile.mkdtemp(prefix="holdfast-postgres-"))
    root = os.geteuid() == 0
    if root:
        shutil.chown(directory, ACCOUNT, ACCOUNT)
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}

    def call(program: str, *arguments: str) -> None:
        done = subprocess.run(
            [programs / program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=directory,
            env=environment,
            user=ACCOUNT if root else None,
            group=ACCOUNT if root else None,
            extra_groups=[] if root else None,
        )
        assert done.returncode == 0, f"{program} failed: {done.stdout or (directory / 'log').read_text()}"

    port = _free_port()
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
    try:
        call("initdb", "-D", f"{directory}/data", "-U", "holdfast", "-A", "trust", "-E", "UTF8", "-N")
        call("pg_ctl", "-D", f"{directory}/data", "-l", f"{directory}/log", "-o", options, "-w", "start")
        try:
            yield f"postgresql://holdfast@127.0.0.1:{port}/postgres"
        finally:
            call("pg_ctl", "-D", f"{directory}/data", "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(directory)


def restored(programs: Path, source_url: str, target_url: str) -> None:
    """Copy a database by pg_dump and psql, as an operator restores a backup."""
    dump = subprocess.run([programs / "pg_dump", "--no-owner", source_url], capture_output=True, check=True).stdout
    restore = [programs / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", target_url]
    done = subprocess.run(restore, input=dump, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
