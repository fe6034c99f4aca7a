"""Initialize, start and stop the server. Callers hold start.lock."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import psycopg

from holdfast.domain.errors import ConfigurationError
from holdfast.embedded import account, locks, tuning
from holdfast.embedded.places import DATABASE, MAJOR_VERSION, ROLE, Places, binaries

# Recovery after a crash replays up to max_wal_size of WAL before the server accepts connections.
START_SECONDS = 300.0
STOP_SECONDS = 60.0
CRASH_STOP_SECONDS = 10.0


def start(places: Places, start_lock: int, *, durable: bool) -> None:
    """Start the server unless it is running, and return once it accepts connections."""
    deadline = time.monotonic() + START_SECONDS
    launched = False
    while not answers(places):
        lock = locks.open_lock(places.server_lock)
        try:
            if locks.attempt(lock, fcntl.LOCK_EX):
                if launched:
                    raise ConfigurationError(f"the embedded PostgreSQL exited while starting: {_last_error(places)}")
                _launch(places, start_lock, lock, durable=durable)
                launched = True
            elif not launched:
                _end_orphans(places)
        finally:
            os.close(lock)
        if time.monotonic() > deadline:
            raise ConfigurationError(
                f"the embedded PostgreSQL in {places.data} is running but has not responded for {START_SECONDS:.0f} s: "
                f"{_last_error(places)}"
            )
        time.sleep(locks.PAUSE_SECONDS)


def stop(places: Places) -> None:
    """Shut the server down cleanly and wait until all its processes have ended."""
    for how, seconds in ((signal.SIGINT, STOP_SECONDS), (signal.SIGQUIT, CRASH_STOP_SECONDS)):
        deadline = time.monotonic() + seconds
        signalled = False
        while locks.is_held(places.server_lock):
            pid = find(places)
            if pid is None:
                _end_orphans(places)
            elif not signalled:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, how)
                signalled = True
            if time.monotonic() > deadline:
                break
            time.sleep(locks.PAUSE_SECONDS)
        else:
            places.remove_sockets()
            return


def answers(places: Places) -> bool:
    """Whether the server accepts connections. Creates the database if it does not exist yet."""
    try:
        connection = psycopg.connect(places.url("postgres"), connect_timeout=10, autocommit=True)
    except psycopg.OperationalError as error:
        return "too many clients" in str(error)
    with contextlib.closing(connection):
        try:
            if not connection.execute("select from pg_database where datname = %s", [DATABASE]).rowcount:
                connection.execute(f"create database {DATABASE}")
        except psycopg.Error as error:
            if connection.broken:
                return False
            message = str(error).splitlines()[0]
            raise ConfigurationError(f"the embedded PostgreSQL in {places.data} is not usable: {message}") from error
    return True


def _launch(places: Places, start_lock: int, server_lock: int, *, durable: bool) -> None:
    programs = binaries()
    runner = account.choose(places, programs)
    if not places.data.exists():
        _initialise(places, programs, runner, start_lock, durable=durable)
    _check(places, runner)
    account.hand_over(places.data, runner.uid, runner.gid)
    places.make_sockets(runner.uid, runner.gid)
    for path, text in (
        (places.configuration, tuning.configuration(places.sockets, durable=durable)),
        (places.admission, tuning.ADMISSION),
    ):
        with os.fdopen(places.create(path), "w") as file:
            file.write(text)
    # This process holds server.lock, so the server that wrote this is gone, even if its process id has been reused.
    (places.data / "postmaster.pid").unlink(missing_ok=True)
    options = [
        f"config_file={places.configuration}",
        f"hba_file={places.admission}",
        f"cluster_name={places.cluster_name}",  # part of each process's title
    ]
    command: list[str | Path] = [programs / "postgres", "-D", places.data, *(f"--{option}" for option in options)]
    with os.fdopen(places.create(places.start_log), "w") as log:
        account.run(runner.server, command, output=log, detach=True, keep=[server_lock])


def _initialise(places: Places, programs: Path, runner: account.Account, start_lock: int, *, durable: bool) -> None:
    shutil.rmtree(places.unfinished_data, ignore_errors=True)
    places.unfinished_data.mkdir(mode=0o700)
    account.hand_over(places.unfinished_data, *runner.maker)
    locale = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    guard = ["--auth-local=trust", "--auth-host=reject", "--data-checksums", "--no-instructions"]
    command: list[str | Path] = [programs / "initdb", "-D", places.unfinished_data, "-U", ROLE, *locale, *guard]
    if not durable:
        command.append("--no-sync")
    with os.fdopen(places.create(places.start_log), "w") as log:
        try:
            # initdb holds start.lock too: if this process is killed, no other one starts before initdb has ended.
            failed = account.run(runner.initdb, command, output=log, keep=[start_lock])
        except BaseException:
            shutil.rmtree(places.unfinished_data, ignore_errors=True)
            raise
    if failed:
        message = _last_error(places)
        shutil.rmtree(places.unfinished_data, ignore_errors=True)
        raise ConfigurationError(f"the embedded PostgreSQL could not be created in {places.home}: {message}")
    account.hand_over(places.unfinished_data, runner.uid, runner.gid)
    places.unfinished_data.rename(places.data)
    home = os.open(places.home, os.O_RDONLY)
    try:
        os.fsync(home)
    finally:
        os.close(home)


def _check(places: Places, runner: account.Account) -> None:
    version_file = places.data / "PG_VERSION"
    owner = places.data.stat().st_uid
    if owner != runner.uid and os.geteuid() != 0:
        raise ConfigurationError(
            f"{places.data} belongs to another user (uid {owner}). "
            "Run as that user or as root, or set HOLDFAST_HOME to a directory of your own."
        )
    version = version_file.read_text().strip() if version_file.is_file() else None
    if version != MAJOR_VERSION:
        found = f"PostgreSQL data of version {version}" if version else "no PostgreSQL data"
        raise ConfigurationError(
            f"{places.data} contains {found}, but version {MAJOR_VERSION} is needed. "
            "Move it elsewhere, set HOLDFAST_HOME to another directory, or set HOLDFAST_DATABASE_URL."
        )


def find(places: Places) -> int | None:
    """Return the process id of the postmaster, if it is visible from here."""
    try:
        pid = int((places.data / "postmaster.pid").read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return None
    return pid if sys.platform != "linux" or str(places.data) in _arguments(pid) else None


def _arguments(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")
    return []


def _end_orphans(places: Places) -> None:
    """Kill processes that a killed postmaster left running, because they prevent another start."""
    if sys.platform != "linux" or find(places) is not None:
        return
    for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()):
        if "".join(_arguments(pid)).startswith(f"postgres: {places.cluster_name}: "):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGQUIT)


def _last_error(places: Places) -> str:
    """Return the last error in the logs, or else the last line."""
    logs = [places.start_log, *sorted((places.data / "log").glob("*.log"), key=lambda path: path.stat().st_mtime)[-1:]]
    lines = [line for log in logs if log.is_file() for line in log.read_text(errors="replace").splitlines() if line]
    errors = [line for line in lines if any(word in line for word in ("FATAL", "PANIC", "rror:", "cannot run"))]
    return (errors or lines or ["it printed no message"])[-1].strip() + f" (see {places.start_log})"
