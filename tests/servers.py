"""Servers for tests and measurements: a PostgreSQL of the distribution with its stock settings, and a PgBouncer."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

START_WITHIN = 30.0
# Enough connections for the suite, and no waiting for the disk; otherwise the server's defaults.
FOR_TESTS = {"max_connections": "300", "fsync": "off"}


def binaries(version: str) -> Path | None:
    """Where Debian keeps the programs of this version; None if it is not installed."""
    found = Path(f"/usr/lib/postgresql/{version}/bin")
    return found if (found / "postgres").exists() else None


@contextmanager
def stock_postgres(
    version: str, settings: Mapping[str, str] = FOR_TESTS, *, local: bool = False, parent: Path | None = None
) -> Iterator[str]:
    """The URL of a server with its default settings on a free port, which is stopped afterwards.

    With `local` the address is that of its Unix socket. Its files are in memory, if possible, or under `parent`.
    """
    programs = binaries(version)
    if programs is None:
        raise FileNotFoundError(
            f"PostgreSQL {version} is not installed; on Debian: apt-get install postgresql-{version}"
        )
    account = _account()
    with _directory(account, parent) as directory:
        data, port = directory / "data", free_port()
        locale = ["--locale=C.UTF-8", "--encoding=UTF8", "--auth=trust", "--username=postgres"]
        _run([programs / "initdb", "-D", data, *locale], account)
        given = {
            "port": str(port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(directory),
            **settings,
        }
        options = [word for name, value in given.items() for word in ("-c", f"{name}={value}")]
        server = _start([programs / "postgres", "-D", data, *options], account, directory / "log")
        url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        try:
            _wait_for(url, server, directory / "log")
            yield f"postgresql://postgres@/postgres?host={directory}&port={port}" if local else url
        finally:
            _stop(server)


@contextmanager
def pgbouncer(server_url: str, **settings: Any) -> Iterator[str]:
    """The URL of a PgBouncer in transaction mode in front of this server, for any of its databases."""
    target = conninfo_to_dict(server_url)
    host, user = str(target["host"]), str(target["user"])
    # Only the account that runs an embedded server, and root, can reach its socket, and PgBouncer does not run as
    # root.
    account = _owner(Path(host)) if host.startswith("/") else _account()
    with _directory(account) as directory:
        port = free_port()
        given = {
            "listen_addr": "127.0.0.1",
            "listen_port": port,
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": directory / "users",
            "pool_mode": "transaction",
            "max_client_conn": 500,
            "default_pool_size": 20,
            "logfile": directory / "log",
            "verbose": 0,
            **settings,
        }
        (directory / "users").write_text(f'"{user}" ""\n')
        lines = [f"* = host={host} port={target.get('port', 5432)} user={user}"]
        (directory / "pgbouncer.ini").write_text(
            "\n".join(["[databases]", *lines, "[pgbouncer]", *(f"{name} = {value}" for name, value in given.items())])
        )
        for file in directory.iterdir():
            file.chmod(0o644)
        server = _start(["pgbouncer", directory / "pgbouncer.ini"], account, directory / "output")
        database = target.get("dbname", "postgres")
        url = f"postgresql://{quote(user)}@127.0.0.1:{port}/{database}"
        try:
            _wait_for(url, server, directory / "log")
            yield url
        finally:
            _stop(server)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _account() -> tuple[int, int] | None:
    """The account that servers run as: this user, or another one if this is root, which they refuse."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return found.pw_uid, found.pw_gid
    return 65534, 65534


def _owner(path: Path) -> tuple[int, int] | None:
    found = path.stat()
    return (found.st_uid, found.st_gid) if os.geteuid() == 0 else None


@contextmanager
def _directory(account: tuple[int, int] | None, parent: Path | None = None) -> Iterator[Path]:
    memory = Path("/dev/shm")
    if parent is None and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2 * 1024**3:
        parent = memory
    directory = Path(tempfile.mkdtemp(prefix="holdfast-server-", dir=parent))
    try:
        if account is not None:
            os.chown(directory, *account)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _becoming(account: tuple[int, int] | None) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
    options: dict[str, Any] = {"cwd": "/", "env": environment | {"LC_ALL": "C"}, "stdin": subprocess.DEVNULL}
    if account is not None:
        options |= {"user": account[0], "group": account[1], "extra_groups": []}
    return options


def _run(words: list[Any], account: tuple[int, int] | None) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True, **_becoming(account))


def _start(words: list[Any], account: tuple[int, int] | None, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen([str(word) for word in words], stdout=output, stderr=output, **_becoming(account))


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    ends_at = time.monotonic() + START_WITHIN
    while True:
        try:
            psycopg.connect(url, connect_timeout=2).close()
        except psycopg.OperationalError as error:
            if server.poll() is not None or time.monotonic() > ends_at:
                said = log.read_text(errors="replace") if log.exists() else ""
                raise RuntimeError(f"the server at {url} did not start: {error}\n{said[-2000:]}") from error
            time.sleep(0.05)
        else:
            return


def _stop(server: subprocess.Popen[bytes]) -> None:
    """Stop it immediately: its data is deleted anyway."""
    server.send_signal(3)
    try:
        server.wait(10)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
