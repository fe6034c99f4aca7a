"""The harness's own PostgreSQL server and pooler, which it starts, crashes, demotes and stops by process id.

Both run on loopback, in a directory of the harness, under another account if the harness is root. The kernel kills them
if the harness dies (`setpriv --pdeathsig`), so nothing outlives it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from holdfast.embedded import account, places

ROLE = "holdfast"
DATABASE = "chaos"
START_SECONDS = 60.0
DEBIAN = "/usr/lib/postgresql/{}/bin"
POOLER = "/usr/sbin/pgbouncer"

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": 250,
    # A process crash loses nothing that the kernel has received; only a power failure would.
    "fsync": "off",
    "full_page_writes": "off",
    # A standby must be able to serve readers.
    "wal_level": "replica",
    "hot_standby": "on",
    "log_min_messages": "warning",
    "log_line_prefix": "%m [%p] %a ",
    "lc_messages": "C",
    "timezone": "UTC",
}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def until(look: Callable[[], Any], seconds: float, what: str) -> Any:
    end = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(0.02)
    return found


class Owner:
    """The account that servers run as: PostgreSQL and PgBouncer both refuse to run as root."""

    def __init__(self) -> None:
        self.dropping = os.geteuid() == 0
        name = next((one for one in ("postgres", "nobody") if self.dropping and _exists(one)), None)
        entry = pwd.getpwnam(name) if name else None
        self.uid, self.gid = (entry.pw_uid, entry.pw_gid) if entry else (os.geteuid(), os.getegid())

    def prefix(self) -> list[str]:
        """The prefix of a command that makes it run under this account and end with the harness."""
        drop = [f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups"] if self.dropping else []
        return ["setpriv", *drop, "--pdeathsig", "KILL"]

    def give(self, path: Path) -> None:
        if self.dropping:
            os.chown(path, self.uid, self.gid)


def _exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def programs(version: str | None, directory: Path, owner: Owner) -> Path:
    """The directory of `initdb` and `postgres`: Debian's of that version, or else the embedded ones, for `owner`."""
    if version is not None:
        found = Path(DEBIAN.format(version))
        if not (found / "postgres").exists():
            raise SystemExit(f"there is no PostgreSQL {version} in {found}")
        return found
    found = places.binaries()
    if owner.dropping and not account.reachable(found, owner.uid, owner.gid):
        copy = directory / "pginstall"
        shutil.copytree(found.parent, copy, symlinks=True)
        return copy / "bin"
    return found


class Postgres:
    """A server that can be crashed, stopped at once, and turned into a standby and back."""

    def __init__(self, directory: Path, version: str | None, owner: Owner) -> None:
        self._programs = programs(version, directory, owner)
        self._owner = owner
        self._data = directory / "data"
        self._log = directory / "postgres.log"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._initialise()

    @property
    def url(self) -> str:
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        return f"postgresql://{ROLE}@127.0.0.1:{self.port}/{database}?sslmode=disable"

    def connect(self, database: str = DATABASE) -> psycopg.Connection[Any]:
        """A session of the harness, which can write regardless of the settings that faults have changed."""
        return psycopg.connect(
            self.url_of(database),
            autocommit=True,
            connect_timeout=5,
            application_name="chaos",
            options="-c default_transaction_read_only=off",
        )

    def _initialise(self) -> None:
        self._data.mkdir(mode=0o700)
        self._owner.give(self._data)
        command = [self._programs / "initdb", "-D", self._data, "-U", ROLE, "--auth=trust", "--no-sync", "-E", "UTF8"]
        made = subprocess.run([*self._owner.prefix(), *map(str, command), "--locale=C"], capture_output=True, cwd="/")
        if made.returncode:
            raise SystemExit(f"initdb failed: {made.stderr.decode(errors='replace')}")
        lines = {**SETTINGS, "port": self.port, "unix_socket_directories": ""}
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in lines.items())

    def start(self) -> None:
        """Start the server and return once it responds. Processes of a killed server may have to end first."""
        until(self._starts, START_SECONDS, "the server starts")

    def _starts(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            (self._data / "postmaster.pid").unlink(missing_ok=True)
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    [*self._owner.prefix(), str(self._programs / "postgres"), "-D", str(self._data)],
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        return self.answers()

    def answers(self) -> bool:
        try:
            self.connect("postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def end(self, how: signal.Signals) -> None:
        """Signal the postmaster and wait until it is gone: SIGINT and SIGQUIT shut it down, SIGKILL crashes it."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_SECONDS)
            self._process = None

    def demote(self) -> None:
        """Stop immediately and restart as a standby, which rejects every write until `promote`."""
        self.end(signal.SIGQUIT)
        mark = self._data / "standby.signal"
        mark.touch()
        self._owner.give(mark)
        self.start()

    def promote(self) -> None:
        with self.connect("postgres") as connection:
            connection.execute("select pg_promote()")

    def backends(self) -> list[int]:
        """The server's processes that serve Holdfast's sessions."""
        with self.connect() as connection:
            found = connection.execute(
                "select pid from pg_stat_activity where datname = %s and application_name <> 'chaos'", [DATABASE]
            )
            return [pid for (pid,) in found]


class Pooler:
    """PgBouncer in transaction mode, otherwise with Debian's defaults."""

    def __init__(self, directory: Path, server_port: int, owner: Owner) -> None:
        self._directory = directory / "pooler"
        self._directory.mkdir()
        owner.give(self._directory)
        self._owner = owner
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        (self._directory / "users.txt").write_text(f'"{ROLE}" ""\n')
        (self._directory / "pgbouncer.ini").write_text(
            f"[databases]\n* = host=127.0.0.1 port={server_port}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {self._directory}/users.txt\npool_mode = transaction\n"
            f"max_client_conn = 500\ndefault_pool_size = 40\nserver_login_retry = 0.2\n"
            f"logfile = {self._directory}/log\n"
        )

    @staticmethod
    def available() -> bool:
        return Path(POOLER).exists()

    @property
    def url(self) -> str:
        return f"postgresql://{ROLE}@127.0.0.1:{self.port}/{DATABASE}?sslmode=disable"

    def start(self) -> None:
        self._process = subprocess.Popen(
            [*self._owner.prefix(), POOLER, "-q", str(self._directory / "pgbouncer.ini")],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        until(self._listens, START_SECONDS, "the pooler starts")

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
