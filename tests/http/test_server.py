"""The shipped server: who may connect, what its processes share, and how it stops."""

from __future__ import annotations

import os
import re
import secrets
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import psycopg
from flask import Flask

from holdfast.domain.ids import new_id
from holdfast.domain.tokens import mint
from holdfast.drivers.psycopg import transact
from holdfast.http.service import EXTENSION
from holdfast.ops.tokens import create_token
from tests.http.conftest import Server, Submit
from tests.http.manual_worker import ManualWorker
from tests.http.test_outage import until


def test_server_beyond_loopback_does_not_start_without_a_token(
    start_server: Callable[..., Server], database_url: str
) -> None:
    refused = start_server(HOLDFAST_HOST="0.0.0.0")
    assert refused.url.startswith("refused: the API would be open to anyone")
    assert "holdfast tokens create" in refused.url
    assert refused.process.wait(20) == 1
    text, stored = mint(secrets.token_bytes(32), new_id(), "ci", ["runs:read"], by="test")
    with psycopg.connect(database_url, autocommit=True) as connection:
        transact(connection, lambda: create_token(stored))
    server = start_server(HOLDFAST_HOST="0.0.0.0")
    port = urlsplit(server.url).port
    with server.client() as client:
        assert client.get(f"http://127.0.0.1:{port}/runs").status_code == 401
        allowed = client.get(f"http://127.0.0.1:{port}/runs", headers={"Authorization": f"Bearer {text}"})
        assert allowed.status_code == 200


def test_port_in_use_is_reported(start_server: Callable[..., Server]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = start_server(HOLDFAST_PORT=str(taken.getsockname()[1]))
        assert "cannot listen" in refused.url
        assert "HOLDFAST_PORT" in refused.url


def test_unreachable_database_at_the_start_is_reported(start_server: Callable[..., Server]) -> None:
    refused = start_server(HOLDFAST_DATABASE_URL="postgresql://x:secret@127.0.0.1:1/x")
    assert "does not respond" in refused.url
    assert "secret" not in refused.url


def sockets(pid: int) -> set[str]:
    """The connected sockets that a process holds, by inode. Listening ones are meant to be shared."""
    held = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except OSError:
            continue
        if target.startswith("socket:"):
            held.add(target[8:-1])
    connected = set()
    for table in ("tcp", "tcp6", "unix"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            inode, state = (fields[6], fields[5]) if table == "unix" else (fields[9], fields[3])
            if inode in held and state in ("03", "01"):
                connected.add(inode)
    return connected


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_no_connection_is_shared_by_two_processes(start_server: Callable[..., Server]) -> None:
    server = start_server("2")
    with server.client() as client:
        for _ in range(20):
            with server.client() as other:
                assert other.get("/runs").status_code == 200
        family = [server.process.pid, *children(server.process.pid)]
        assert len(family) == 3
        held = [sockets(pid) for pid in family]
        assert held[0] == set()
        assert not held[1] & held[2]
        assert held[1] | held[2]
        text = client.get("/metrics").text
        counted = re.findall(r'http_request_duration_seconds_count{[^}]*route="/runs"[^}]*} (\d+)', text)
        assert sum(map(int, counted)) == 20
    code, output = server.stop()
    assert (code, output) == (0, "")


def test_forked_application_opens_its_own_connections(app: Flask, submit: Submit) -> None:
    submit()
    ours = app.extensions[EXTENSION].database
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        # Nothing of pytest may run in the child, so it reports its result and exits.
        try:
            answer = app.test_client().get("/runs")
            fine = answer.status_code == 200 and app.extensions[EXTENSION].database is not ours
            os.write(writer, b"1" if fine else b"0")
        finally:
            os._exit(0)
    os.close(writer)
    found = os.read(reader, 1)
    os.close(reader)
    os.waitpid(child, 0)
    assert found == b"1"
    assert app.test_client().get("/runs").status_code == 200
    assert app.extensions[EXTENSION].database is ours


def test_a_process_that_dies_is_replaced(server: Server, submit: Submit) -> None:
    (worker,) = until(lambda: children(server.process.pid))
    os.kill(worker, signal.SIGKILL)
    with server.client() as client:

        def answered() -> bool:
            try:
                return client.get("/runs").status_code == 200
            except httpx2.TransportError:
                return False

        until(answered)

    assert children(server.process.pid) != [worker]


def test_server_ends_with_its_parent_and_leaves_no_process(server: Server) -> None:
    (worker,) = until(lambda: children(server.process.pid))
    server.process.kill()
    server.process.wait()
    until(lambda: not Path(f"/proc/{worker}").exists())


def test_incomplete_requests_hold_no_thread(server: Server) -> None:
    parts = urlsplit(server.url)
    stuck = [socket.create_connection((parts.hostname, parts.port)) for _ in range(50)]
    for one in stuck:
        one.sendall(b"POST /runs HTTP/1.1\r\nHost: localhost\r\n")
    with server.client() as client:
        assert client.get("/livez").status_code == 200
    for one in stuck:
        one.close()


def test_an_idle_connection_does_not_delay_a_stop(start_server: Callable[..., Server]) -> None:
    """The server would wait for an open connection for as long as for a request: ten minutes here."""
    server = start_server(HOLDFAST_GRACE_SECONDS="600")
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=20) as idle:
        idle.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(65536).startswith(b"HTTP/1.1 200")
        assert server.stop() == (0, "")


def test_incomplete_request_gets_a_response(start_server: Callable[..., Server]) -> None:
    server = start_server("1", "1")
    parts = urlsplit(server.url)
    head = b"POST /runs HTTP/1.1\r\nHost: localhost\r\n"
    typed = head + b"Content-Type: application/json\r\n"
    halves = [
        head,
        typed + b'Content-Length: 100\r\n\r\n{"model":',
        typed + b"Transfer-Encoding: chunked\r\n\r\n50\r\n{",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n" + head,
    ]
    for half in halves:
        with socket.create_connection((parts.hostname, parts.port), timeout=20) as one:
            one.sendall(half)
            response = b"".join(iter(lambda: one.recv(65536), b"")).decode()
        refusal = response[response.rindex("HTTP/1.1 ") :]
        assert refusal.startswith("HTTP/1.1 408 Request")
        assert "/problems/request-timeout" in refusal
        assert "connection: close" in refusal.lower()
    assert server.stop() == (0, "")


def test_two_idempotency_keys_are_refused(server: Server) -> None:
    ask = {"content": b'{"model":"mirror"}'}
    typed = ("Content-Type", "application/json")
    with server.client() as client:
        for keys in (("a", "b"), ("a", "a"), ('"a"', '"b"')):
            headers = [typed, *(("Idempotency-Key", key) for key in keys)]
            answer = client.post("/runs", headers=headers, **ask)
            assert (answer.status_code, answer.json()["type"]) == (400, "/problems/bad-key")
        assert client.get("/runs").json()["items"] == []
        assert client.post("/runs", headers=[typed, ("Idempotency-Key", "a,b")], **ask).status_code == 201


def test_a_chunked_body_is_read(server: Server) -> None:
    with server.client() as client:
        pieces = iter([b'{"model":', b'"mirror"}'])
        answer = client.post("/runs", content=pieces, headers={"Content-Type": "application/json"})
        assert answer.status_code == 201, answer.text
        large = client.post("/runs", content=iter([b"[" * 65536] * 40), headers={"Content-Type": "application/json"})
        assert large.status_code == 413
    # The server does not read the rest, so it closes this connection, and continues to serve others.
    with server.client() as client:
        assert client.get("/livez").status_code == 200


def test_walkthrough_of_the_source_documents_works(server: Server, manual_worker: ManualWorker) -> None:
    """The walkthrough of the source documents."""
    with server.client() as client:
        asked = {"model": "typed", "parameters": {"scenario": "high_inflation", "months": 24}}
        first = client.post("/runs", json=asked)
        again = client.post("/runs", json=asked)
        assert (first.status_code, again.status_code) == (201, 200)
        assert again.json()["run_id"] == first.json()["run_id"]
        path = first.json()["links"]["result"]
        assert client.get(path).status_code == 409
        manual_worker.run(first.json()["run_id"], {"metrics": {"objective": 0.83}})
        assert client.get(path).json() == {"metrics": {"objective": 0.83}}
