"""holdfast up: everything is started, restarted and stopped, and nothing is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from holdfast import Client
from holdfast.embedded.locks import is_held
from holdfast.embedded.places import Places
from holdfast.processes.family import children, family, kill_family, wait_gone
from holdfast.runtime.settings import Settings
from tests.integration.cli_support import Cli
from tests.integration.worker_support import eventually

SECONDS = 60.0


class Up:
    """`holdfast up` and its child processes."""

    def __init__(self, cli: Cli, *arguments: str) -> None:
        self.cli = cli
        self.process = cli.start("up", *arguments, stdout=subprocess.DEVNULL, process_group=0)
        assert self.process.stderr is not None
        self.said = ""
        while "Ctrl-C" not in self.said:
            line = self.process.stderr.readline()
            assert line, self.said
            self.said += line

    def request(self, path: str, body: bytes | None = None) -> Any:
        """Ask the API; None if it does not respond."""
        url = next(line.split()[1] for line in self.said.splitlines() if line.startswith("API"))
        headers = {"Content-Type": "application/json"}
        with contextlib.suppress(OSError), urlopen(Request(url + path, body, headers), timeout=SECONDS) as answer:
            return json.load(answer)
        return None

    def end(self, number: int) -> int:
        members = family(self.process.pid)
        self.process.send_signal(number)
        code = self.process.wait(SECONDS)
        assert wait_gone(members, SECONDS) == []
        return code


@pytest.fixture
def up() -> Iterator[Callable[..., Up]]:
    started: list[Up] = []

    def start(cli: Cli, *arguments: str) -> Up:
        started.append(Up(cli, *arguments))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            kill_family(one.process.pid)
            one.process.wait()
        if one.process.stderr is not None:
            one.process.stderr.close()


def test_runs_are_executed_and_a_killed_worker_is_restarted(
    database_url: str, tmp_path: Path, up: Callable[..., Up]
) -> None:
    cli = Cli(tmp_path, database_url=database_url, lease_seconds="3")
    running = up(cli, "--slots", "1", "--no-api")
    assert "holdfast submit mock" in running.said
    with Client(Settings(database_url=database_url)) as client:
        (first,) = eventually(client.workers, SECONDS)
        kill_family(first.pid)
        (second,) = eventually(lambda: [one for one in client.workers() if one.id != first.id], SECONDS)
    assert second.pid != first.pid
    assert cli.ok("submit", "mock", "-p", "seconds=0", "--wait").json["notes"] == "simulated"
    assert running.end(signal.SIGTERM) == 0
    # The killed worker is listed until its lease has expired; the stopped one has deregistered.
    listed = cli.ok("workers", "list", "--json").json["items"]
    assert second.id not in [one["id"] for one in listed]


def test_worker_and_api_know_the_given_tasks_and_the_api_is_restarted_on_its_port(
    database_url: str, tmp_path: Path, up: Callable[..., Up]
) -> None:
    (tmp_path / "mine.py").write_text(
        'from holdfast import task\n\n@task("twice")\ndef twice(n: int) -> int:\n    return 2 * n\n'
    )
    cli = Cli(tmp_path, database_url=database_url, port="0")
    running = up(cli, "--slots", "1", "--tasks", "mine")
    eventually(lambda: running.request("/livez"), SECONDS)
    run = running.request("/runs", b'{"model": "twice", "parameters": {"n": 21}}')
    assert running.request(f"/runs/{run['run_id']}?wait=60")["status"] == "SUCCEEDED"
    assert running.request(f"/runs/{run['run_id']}/result") == 42
    (worker,) = running.request("/workers")["items"]
    (api,) = (pid for pid in children(running.process.pid) if pid != worker["pid"])
    kill_family(api)
    assert eventually(lambda: running.request(f"/runs/{run['run_id']}"), SECONDS)["status"] == "SUCCEEDED"
    assert running.end(signal.SIGINT) == 0


def test_port_in_use_is_reported_immediately(database_url: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        cli = Cli(tmp_path, database_url=database_url, port=str(taken.getsockname()[1]))
        answer = cli("up")
    assert answer.code == 1
    assert "Set HOLDFAST_HOST and HOLDFAST_PORT" in answer.err.splitlines()[-1]


def test_embedded_server_runs_as_long_as_up_does(home: Path, tmp_path: Path, up: Callable[..., Up]) -> None:
    cli = Cli(tmp_path, home=str(home), port="0")
    running = up(cli, "--slots", "1")
    places = Places(home)
    assert str(places.sockets) in running.said
    run_id = cli.submit("-p", "seconds=0")
    assert cli.ok("runs", "wait", run_id).out == f"{run_id}  SUCCEEDED\n"
    assert is_held(places.server_lock)
    assert running.end(signal.SIGINT) == 0
    assert not is_held(places.server_lock)
    assert cli.ok("runs", "show", run_id, "--json").json["status"] == "SUCCEEDED"


def test_processes_of_a_killed_up_stop(home: Path, tmp_path: Path, up: Callable[..., Up]) -> None:
    cli = Cli(tmp_path, home=str(home), lease_seconds="3", port="0")
    running = up(cli, "--slots", "1")
    eventually(lambda: running.request("/livez"), SECONDS)
    eventually(lambda: running.request("/workers")["items"], SECONDS)
    members = family(running.process.pid)
    assert len(members) > 1
    os.kill(running.process.pid, signal.SIGKILL)
    running.process.wait()
    assert wait_gone(members, SECONDS) == []
    eventually(lambda: not is_held(Places(home).server_lock), SECONDS)


def test_worker_whose_parent_is_already_gone_exits(database_url: str, tmp_path: Path) -> None:
    answer = Cli(tmp_path, database_url=database_url)("worker", "--with-parent", "1")
    assert answer.code in (0, 143), answer


def test_up_does_not_start_without_a_usable_database(tmp_path: Path) -> None:
    away = Cli(tmp_path, database_url="postgresql://127.0.0.1:1/x")
    assert "does not respond" in away.refused("up", code=69)
