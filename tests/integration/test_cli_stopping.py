"""A service that is asked to stop while it is starting exits at once with code 0 and leaves nothing behind."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast.embedded.places import Places
from tests.integration.cli_support import Answer, Cli, finish
from tests.integration.worker_support import eventually

SERVICES = ("worker", "up", "api", "sweep")

BLOCKING = """
import pathlib, threading
pathlib.Path({reached!r}).touch()
threading.Event().wait()
"""


@pytest.fixture
def blocking(tmp_path: Path) -> Path:
    """The directory of a module whose import never finishes."""
    directory = tmp_path / "modules"
    directory.mkdir()
    return directory


def stopped(process: subprocess.Popen[str]) -> Answer:
    answer = finish(process, signal.SIGTERM)
    assert answer.code == 0, answer
    assert "Traceback" not in answer.err
    return answer


def started(cli: Cli, service: str, **env: str) -> subprocess.Popen[str]:
    return cli.start(service, env={"HOLDFAST_PORT": "0", **env})


def put(directory: Path, module: str, reached: Path) -> None:
    (directory / f"{module}.py").write_text(BLOCKING.format(reached=str(reached)))


@pytest.mark.parametrize("module", ["click", "psycopg", "my_tasks"])
@pytest.mark.parametrize("service", SERVICES)
def test_sigterm_during_imports_exits_with_0(
    service: str, module: str, database_url: str, tmp_path: Path, blocking: Path
) -> None:
    put(blocking, module, tmp_path / "reached")
    cli = Cli(tmp_path, database_url=database_url, tasks="my_tasks")
    process = started(cli, service, PYTHONPATH=str(blocking))
    eventually((tmp_path / "reached").exists)
    stopped(process)


def test_sigterm_during_imports_of_another_command_exits_with_143(
    database_url: str, tmp_path: Path, blocking: Path
) -> None:
    put(blocking, "psycopg", tmp_path / "reached")
    process = Cli(tmp_path, database_url=database_url).start("runs", "list", env={"PYTHONPATH": str(blocking)})
    eventually((tmp_path / "reached").exists)
    assert finish(process, signal.SIGTERM).code == 143


@contextlib.contextmanager
def silent_server() -> Iterator[tuple[int, threading.Event]]:
    """A port that accepts connections and never responds."""
    reached = threading.Event()
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    held.append(listener.accept()[0])
                    reached.set()

        thread = threading.Thread(target=accept)
        thread.start()
        yield listener.getsockname()[1], reached
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    for one in held:
        one.close()


@pytest.mark.parametrize("service", SERVICES)
def test_sigterm_while_the_database_does_not_answer_exits_with_0(service: str, tmp_path: Path) -> None:
    with silent_server() as (port, reached):
        process = started(Cli(tmp_path, database_url=f"postgresql://nobody@127.0.0.1:{port}/none"), service)
        assert reached.wait(60)
        stopped(process)


@pytest.mark.parametrize("service", ["worker", "sweep"])
def test_sigterm_while_waiting_to_register_exits_with_0(service: str, database_url: str, tmp_path: Path) -> None:
    waiting = (
        "select count(*) from pg_locks join pg_database on pg_database.oid = database and datname = current_database()"
        " where not granted and relation = 'holdfast.workers'::regclass"
    )
    with psycopg.connect(database_url) as holder, psycopg.connect(database_url, autocommit=True) as watcher:
        holder.execute("lock table holdfast.workers in access exclusive mode")
        process = started(Cli(tmp_path, database_url=database_url, grace_seconds="1"), service)
        eventually(lambda: watcher.execute(waiting).fetchone() == (1,))
        stopped(process)


@pytest.mark.parametrize(
    ("service", "point"), [("worker", "initdb"), ("worker", "server"), ("worker", "answering"), ("api", "server")]
)
def test_sigterm_while_starting_the_embedded_server_exits_with_0(service: str, point: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    places = Places((tmp_path / ".holdfast").resolve())
    process = started(Cli(tmp_path), service)
    pid_file = places.data / "postmaster.pid"
    look = {
        "initdb": lambda: places.unfinished_data.exists() or places.data.exists(),
        "server": pid_file.exists,
        "answering": lambda: pid_file.exists() and "ready" in pid_file.read_text(),
    }[point]
    eventually(look, within=60)
    stopped(process)
    assert not [entry for entry in Path("/proc").iterdir() if str(places.home) in command_line(entry)]


def command_line(entry: Path) -> str:
    with contextlib.suppress(OSError):
        return (entry / "cmdline").read_text() if entry.name.isdecimal() else ""
    return ""
