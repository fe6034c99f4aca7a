"""The servers that all contenders share: one Postgres with real durability, one Redis that keeps nothing on disk."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
from psycopg import sql

from holdfast.embedded import Server, ensure_running
from holdfast.embedded.tuning import configuration
from tests.servers import stock_postgres

# What a server needs to be ours alone and quiet; all else goes back to what PostgreSQL ships.
KEPT = re.compile(r"listen_|port$|unix_|max_connections|dynamic_shared|timezone|log_|logging_|lc_")
SHOWN_SETTINGS = [
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_sync_method",
    "shared_buffers",
    "max_wal_size",
    "wal_level",
    "wal_compression",
    "autovacuum_naptime",
    "checkpoint_timeout",
    "jit",
    "io_method",
    "max_connections",
]


@contextlib.contextmanager
def postgres(home: Path, kind: str) -> Iterator[str]:
    """The address of a Postgres: `stock`, as PostgreSQL ships it, or `embedded`, as Holdfast tunes it, under `home`.

    With a version, such as `15`, it is that of the distribution, with its own defaults.
    """
    if kind.isdigit():
        with stock_postgres(kind, {"max_connections": "200"}, local=True, parent=home.parent) as url:
            yield url
        return
    with ensure_running(home) as server:
        if kind == "stock" and _put_back(server):
            server.release()
            with ensure_running(home) as restarted:
                yield _maintenance(restarted)
        else:
            yield _maintenance(server)


def _maintenance(server: Server) -> str:
    return server.url.replace("/holdfast?", "/postgres?")


def _put_back(server: Server) -> bool:
    """Undo the tuning. True if the server has to start again for that."""
    tuned = re.findall(r"^(\w+) =", configuration(Path(), durable=True), flags=re.MULTILINE)
    names = [name for name in tuned if not KEPT.match(name)]
    with psycopg.connect(server.url, autocommit=True) as connection:
        found = connection.execute(
            "select name, boot_val from pg_settings where name = any(%s) and setting is distinct from boot_val", [names]
        ).fetchall()
        for name, value in found:
            alter = sql.SQL("alter system set {} = {}")
            connection.execute(alter.format(sql.Identifier(name), sql.Literal(value)))
    return bool(found)


def settings_of(url: str) -> dict[str, str]:
    """The settings that matter for the figures."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "select name, current_setting(name) from pg_settings where name = any(%s) order by name", [SHOWN_SETTINGS]
        )
        return dict(rows.fetchall())


@contextlib.contextmanager
def redis(home: Path) -> Iterator[str | None]:
    """The address of a Redis without persistence, or None where there is no redis-server."""
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    home.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    command = [
        program,
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--dir",
        str(home),
        "--save",
        "",
        "--appendonly",
        "no",
    ]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        _wait_for(port)
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _wait_for(port: int) -> None:
    end = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
