"""Every test gets an empty database, cloned from one that was migrated once for the whole run.

The server is `HOLDFAST_DATABASE_URL` if that is set, else the embedded one in a directory that all processes of the
run share. It runs without fsync: a test run has nothing to lose.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from holdfast.embedded import ensure_running, locks, stop_if_unused
from holdfast.testing import clock
from tests.databases import Databases, drop_database, with_database
from tests.ordering import ordered
from tests.servers import pgbouncer

# Tests start more than a thousand interpreters. Without bytecode on disk each of them compiles hundreds of modules,
# which takes three times as long as most of what it does.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Set by the process that pytest was started as, inherited by the workers of pytest-xdist.
RUN_DIRECTORY = "HOLDFAST_TEST_RUN_DIRECTORY"
PREFIX = "holdfast-test-"
# Fixtures whose databases have a clock that tests can move.
CLOCKED = {"timeline", "stage_url"}
# The property in which tests of the explorer record how many schedules they played.
EXPLORED = "explored"

# A busy machine must not fail a test.
hypothesis.settings.register_profile(
    "holdfast", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
)
hypothesis.settings.load_profile("holdfast")


def is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def quick_directory() -> Path | None:
    """Memory, if there is plenty: cloning a database takes 15 ms there and twenty times that on a slow disk."""
    memory = Path("/dev/shm")
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 4 * 1024**3:
        return memory
    return None


def claim(directory: Path) -> None:
    """Mark the directory as in use until this process ends, however it ends."""
    fd = locks.open_lock(directory / "new.lock")
    fcntl.flock(fd, fcntl.LOCK_EX)
    (directory / "new.lock").rename(directory / "run.lock")


def sweep(parent: Path) -> None:
    """Remove what earlier runs left behind because they were killed."""
    for lock in parent.glob(f"{PREFIX}*/run.lock"):
        with contextlib.suppress(FileNotFoundError):  # removed by another process at the same time
            if lock.stat().st_uid == os.geteuid() and not locks.is_held(lock):
                stop_if_unused(lock.parent / "home")
                shutil.rmtree(lock.parent, ignore_errors=True)


def stop_passing_on_ignored_signals() -> None:
    """Replace ignored signals, as with `nohup` or a shell's `&`, by handlers that do nothing: programs that tests start
    would inherit ignored signals, but a signal with a handler has its default action in a new program."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_configure(config: pytest.Config) -> None:
    if is_worker(config) or not config.getoption("numprocesses", None):
        stop_passing_on_ignored_signals()
    if not is_worker(config):
        parent = quick_directory() or Path(tempfile.gettempdir())
        sweep(parent)
        directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        directory.chmod(0o711)  # so that the account that runs root's server can enter it
        claim(directory)
        os.environ[RUN_DIRECTORY] = str(directory)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items[:] = ordered(items, config.workerinput["workercount"] if is_worker(config) else 1)


def pytest_unconfigure(config: pytest.Config) -> None:
    if not is_worker(config) and RUN_DIRECTORY in os.environ:
        directory = Path(os.environ.pop(RUN_DIRECTORY))
        external = os.environ.get("HOLDFAST_DATABASE_URL")
        if external:
            with psycopg.connect(external, autocommit=True) as connection:
                for name in ("template", "clocked"):
                    drop_database(connection, database_name(directory, name))
                    drop_database(connection, database_name(directory, f"{name}_unfinished"))
        stop_if_unused(directory / "home")
        shutil.rmtree(directory)


def database_name(run: Path, suffix: str) -> str:
    return f"{run.name}-{suffix}".replace("-", "_").lower()


@pytest.fixture(scope="session")
def run_directory() -> Path:
    """A directory that all processes of this test run share."""
    return Path(os.environ[RUN_DIRECTORY])


@pytest.fixture(scope="session")
def server_url(run_directory: Path) -> Iterator[str]:
    """A server on which databases can be created; the URL is that of its maintenance database."""
    external = os.environ.get("HOLDFAST_DATABASE_URL")
    if external:
        yield external
        return
    with ensure_running(run_directory / "home", durable=False) as server:
        yield with_database(server.url, "postgres")


@pytest.fixture(scope="session")
def server_connection(server_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server_url, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="session")
def template_database(server_connection: psycopg.Connection, server_url: str, run_directory: Path) -> str:
    """The name of a migrated database without connections, created by the first process that needs it."""
    from holdfast.schema.migrate import upgrade

    return _made_once(server_url, database_name(run_directory, "template"), None, upgrade)


@pytest.fixture(scope="session")
def clocked_template(server_url: str, template_database: str, run_directory: Path) -> str:
    """The same with a clock that tests can move."""

    def install(url: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            clock.install(connection)

    return _made_once(server_url, database_name(run_directory, "clocked"), template_database, install)


def _made_once(server_url: str, name: str, template: str | None, prepare: Callable[[str], None]) -> str:
    unfinished = f"{name}_unfinished"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute("select pg_advisory_lock(hashtext(%s))", [name])
        if not connection.execute("select from pg_database where datname = %s", [name]).rowcount:
            drop_database(connection, unfinished)
            create = sql.SQL("create database {} template {} strategy file_copy")
            connection.execute(create.format(sql.Identifier(unfinished), sql.Identifier(template or "template1")))
            prepare(with_database(server_url, unfinished))
            rename = sql.SQL("alter database {} rename to {}")
            connection.execute(rename.format(sql.Identifier(unfinished), sql.Identifier(name)))
    return name


@pytest.fixture(scope="session")
def databases(
    server_connection: psycopg.Connection, server_url: str, template_database: str, run_directory: Path
) -> Iterator[Databases]:
    with _databases(server_connection, server_url, template_database, run_directory) as databases:
        yield databases


@pytest.fixture(scope="session")
def clocked_databases(
    server_connection: psycopg.Connection, server_url: str, clocked_template: str, run_directory: Path
) -> Iterator[Databases]:
    """Databases whose clock tests can move."""
    with _databases(server_connection, server_url, clocked_template, run_directory) as databases:
        yield databases


@contextlib.contextmanager
def _databases(connection: psycopg.Connection, url: str, template: str, run: Path) -> Iterator[Databases]:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    databases = Databases(connection, url, template, f"{template}_{worker}")
    yield databases
    databases.close()


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty database at the latest schema, used by nothing else during and after the test.

    The mark `fresh_database` requests one that was never used, for tests of plans, sizes and statistics.
    """
    turns_clock = CLOCKED & set(request.fixturenames)
    databases: Databases = request.getfixturevalue("clocked_databases" if turns_clock else "databases")
    with databases.lend(fresh=request.node.get_closest_marker("fresh_database") is not None) as url:
        yield url


@pytest.fixture(scope="session")
def pooler_url(server_url: str) -> Iterator[str]:
    """A PgBouncer in transaction mode in front of the server."""
    if shutil.which("pgbouncer") is None:
        pytest.skip("pgbouncer is not installed")
    with pgbouncer(server_url) as url:
        yield url


@pytest.fixture
def pooled_url(pooler_url: str, database_url: str) -> str:
    """The URL of the test's database through the pooler."""
    return with_database(pooler_url, str(conninfo_to_dict(database_url)["dbname"]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    total: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, counts in getattr(report, "user_properties", ()):
                if name == EXPLORED and getattr(report, "when", "") == "call":
                    total.update(counts)
    if total:
        terminalreporter.write_line(
            f"explored: {total['pairs']} pairs in {total['meetings']} situations, {total['schedules']} schedules "
            f"({total['crashes']} with a crash, {total['waits']} with a wait), {total['transients']} deadlocks and "
            f"refused locks; {total['as_expected']} of {total['formulas']} counts agree with the closed formula; "
            f"{total['violations']} violations"
        )
