"""The health and metrics port of a worker."""

from __future__ import annotations

import json
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from holdfast.worker.port import AT_ONCE, _Server
from tests.integration.cli_support import Cli
from tests.integration.wire import Wire
from tests.integration.worker_support import Stage, eventually


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(database_url, tmp_path, grace_seconds=20.0)
    yield stage
    stage.close()


def address(stage: Stage) -> str:
    """Where the first worker of the stage answers."""

    def urls() -> list[str]:
        lines = stage.file("worker-0.log").read_text().splitlines()
        return [json.loads(line)["url"] for line in lines if "worker.listening" in line]

    return eventually(urls)[0]


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def check(url: str) -> tuple[int, dict[str, Any]]:
    status, body = get(url)
    checks: dict[str, Any] = json.loads(body)["checks"]
    return status, checks


def value(url: str, name: str) -> float | None:
    lines = [line for line in get(f"{url}/metrics")[1].splitlines() if line.startswith(f"{name} ")]
    return float(lines[0].rpartition(" ")[2]) if lines else None


def test_a_worker_serves_health_checks_and_counts_runs_by_queue(stage: Stage) -> None:
    worker = stage.start("--health-port", "0", "--slots", "1")
    url = address(stage)
    assert url.startswith("http://127.0.0.1:")
    assert get(f"{url}/livez")[0] == 200
    eventually(lambda: get(f"{url}/readyz")[0] == 200)
    started = 'holdfast_worker_runs_started_total{queue="default",task="echo"}'
    assert value(url, started) == 0
    stage.ended(stage.submit("echo", value=1))
    ended = 'holdfast_worker_runs_ended_total{queue="default",task="echo",status="SUCCEEDED"}'
    eventually(lambda: (value(url, started), value(url, ended)) == (1, 1))
    assert value(url, 'holdfast_worker_run_wait_seconds_count{queue="default"}') == 1
    assert (value(url, "holdfast_worker_slots"), value(url, "holdfast_worker_database_up")) == (1, 1)
    assert get(f"{url}/")[0] == 404
    run = stage.submit("patient", started=str(stage.file("started")), until=str(stage.file("go")))
    stage.said("started")
    worker.send_signal(signal.SIGTERM)
    draining = {"registered": "ok", "claiming": "down", "postgres": "ok"}
    eventually(lambda: check(f"{url}/readyz") == (503, draining))
    assert get(f"{url}/livez")[0] == 200
    stage.file("go").touch()
    assert worker.wait(30) == 0
    assert stage.client.get(run).status == "SUCCEEDED"


def test_a_worker_whose_database_is_down_is_live_but_not_ready(stage: Stage, wire: Wire) -> None:
    stage.start("--slots", "1", database_url=wire.url, worker_port=0, lease_seconds=60, renew_seconds=15)
    url = address(stage)
    eventually(lambda: get(f"{url}/readyz")[0] == 200)
    wire.cut()
    eventually(lambda: check(f"{url}/readyz")[1]["postgres"] == "down")
    assert get(f"{url}/livez")[0] == 200
    assert value(url, "holdfast_worker_database_up") == 0
    wire.mend()
    eventually(lambda: get(f"{url}/readyz")[0] == 200)


def test_a_port_in_use_is_reported_with_one_clear_error(database_url: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = Cli(tmp_path, database_url=database_url)("worker", "--health-port", port)
    assert said.code == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in said.err
    assert "Traceback" not in said.err


def test_an_error_at_the_start_is_json_if_the_log_is_json(tmp_path: Path) -> None:
    said = Cli(tmp_path, database_url="postgresql://me:hunter2@127.0.0.1:1/x", log_format="json")("worker")
    assert said.code == 69
    starting, line = map(json.loads, said.err.splitlines())
    assert starting["event"] == "worker.starting"
    assert (line["event"], line["level"], "does not respond" in line["error"]) == ("failed", "error", True)
    assert "hunter2" not in said.err


def test_a_request_beyond_the_limit_is_closed_without_an_answer() -> None:
    numbers, begun, finish = count(), threading.Semaphore(0), threading.Event()

    def answer(path: str) -> tuple[int, str, str]:
        number = next(numbers)
        begun.release()
        assert number >= AT_ONCE or finish.wait(20)
        return 200, "text/plain", "ok"

    server = _Server(("127.0.0.1", 0), answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        held = [send_request(server) for _ in range(AT_ONCE)]
        assert all(begun.acquire(timeout=20) for _ in held)
        assert received(send_request(server)) == b""
        finish.set()
        assert {received(one)[:12] for one in held} == {b"HTTP/1.0 200"}
        eventually(lambda: received(send_request(server)).startswith(b"HTTP/1.0 200"))
    finally:
        finish.set()
        server.shutdown()
        server.server_close()
        thread.join()


def send_request(server: _Server) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.server_port), timeout=20)
    connection.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
    return connection


def received(connection: socket.socket) -> bytes:
    """Read until the server closes the connection. A server that has not read the request resets it."""
    with connection:
        try:
            return b"".join(iter(lambda: connection.recv(65536), b""))
        except ConnectionResetError:
            return b""
