"""Raw requests: slow, malformed and truncated. None occupies a thread, and none is executed partially."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import orjson

from holdfast.results.files import CHUNK, FileStore
from holdfast.runtime.settings import Settings
from tests.http.conftest import Server, Submit
from tests.http.manual_worker import ManualWorker
from tests.http.test_outage import until
from tests.http.test_server import children

BODY = b'{"model":"mirror","dedupe":"off"}'
TYPED = b"POST /runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = TYPED + b"Transfer-Encoding: chunked\r\n\r\n"
WHOLE = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
GET = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"

BROKEN = {
    "the size of a chunk is not a number": CHUNKED + b"zz\r\n" + BODY + b"\r\n0\r\n\r\n",
    "the size of a chunk is negative": CHUNKED + b"-5\r\n" + BODY + b"\r\n0\r\n\r\n",
    "the size of a chunk has a sign": CHUNKED + b"+21\r\n" + BODY + b"\r\n0\r\n\r\n",
    "the size of a chunk is empty": CHUNKED + b"\r\n" + BODY + b"\r\n0\r\n\r\n",
    "the size of a chunk is huge": CHUNKED + b"f" * 40 + b"\r\n" + BODY,
    "a chunk is longer than its size": CHUNKED + b"5\r\n" + BODY + b"\r\n0\r\n\r\n",
    "the connection ends in a chunk": CHUNKED + b"50\r\n" + BODY,
    "the connection ends between chunks": CHUNKED + b"%x\r\n%s\r\n" % (len(BODY), BODY),
    "the body is shorter than its length": TYPED + b"Content-Length: %d\r\n\r\n%s" % (len(BODY) + 1, BODY),
    "there is no body": TYPED + b"Content-Length: 33\r\n\r\n",
    "the connection ends in the head": TYPED,
    "the length has more digits than an integer may": TYPED + b"Content-Length: %s\r\n\r\n" % (b"9" * 5000),
    "the length is negative": TYPED + b"Content-Length: -1\r\n\r\n",
    "there are two lengths": TYPED + b"Content-Length: 33\r\nContent-Length: 34\r\n\r\n" + BODY,
    "the body is compressed for the transfer": CHUNKED.replace(b"chunked", b"gzip, chunked") + WHOLE,
    "the body is only compressed": CHUNKED.replace(b"chunked", b"gzip") + WHOLE,
    "there is no Host": TYPED.replace(b"Host: localhost\r\n", b"") + b"Content-Length: 33\r\n\r\n" + BODY,
    "there are two Hosts": TYPED + b"Host: localhost\r\nContent-Length: 33\r\n\r\n" + BODY,
}


def connect(server: Server) -> socket.socket:
    parts = urlsplit(server.url)
    return socket.create_connection((parts.hostname, parts.port), timeout=20)


def received(connection: socket.socket) -> tuple[int, str]:
    """Read everything that the server sends. Return the status of the last response, and its problem type, if any."""
    text = b"".join(iter(lambda: connection.recv(65536), b""))
    *_, last = re.finditer(rb"HTTP/1\.[01] \d{3} ", text)
    head, _, body = text[last.start() :].partition(b"\r\n\r\n")
    kind = orjson.loads(body)["type"] if b"application/problem+json" in head else ""
    return int(head.split()[1]), kind.removeprefix("/problems/")


def answer_to(server: Server, request: bytes) -> tuple[int, str]:
    """The answer to a request after which the client closes its side."""
    with connect(server) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return received(connection)


def open_streams(server: Server) -> float:
    with server.client() as client:
        text = client.get("/metrics").text
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith("holdfast_sse_streams ")))


def test_malformed_requests_are_refused_and_create_no_run(server: Server) -> None:
    answers = {case: answer_to(server, request) for case, request in BROKEN.items()}
    assert answers == dict.fromkeys(BROKEN, (400, "bad-request"))
    lured = BROKEN["there is no body"].replace(b"localhost", b"[::1].evil.example") + BODY
    assert answer_to(server, lured) == (403, "unknown-host")
    with server.client() as client:
        assert client.get("/runs").json()["items"] == []
    assert server.stop() == (0, "")


def test_unusual_but_valid_requests_are_answered(server: Server) -> None:
    assert answer_to(server, CHUNKED + WHOLE)[0] == 201
    assert answer_to(server, CHUNKED + b"21;name=value\r\n" + WHOLE.partition(b"\r\n")[2])[0] == 201
    assert answer_to(server, b"GET /livez HTTP/1.0\r\n\r\n")[0] == 200
    assert answer_to(server, GET % b"http://localhost/livez")[0] == 200
    assert answer_to(server, (GET % b"/livez").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") * 2)[0] == 200
    upgrade = b"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    asked = (GET % b"/livez").replace(b"\r\n\r\n", upgrade + b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
    assert answer_to(server, asked)[0] == 200
    with connect(server) as connection:
        connection.sendall(TYPED + b"Content-Length: 33\r\nExpect: 100-continue\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        connection.sendall(BODY)
        connection.shutdown(socket.SHUT_WR)
        assert received(connection)[0] == 201


def test_400_slow_requests_occupy_no_thread_and_delay_no_other_request(server: Server) -> None:
    (worker,) = until(lambda: children(server.process.pid))
    with ExitStack() as stack:
        for number in range(400):
            connection = stack.enter_context(connect(server))
            connection.sendall(TYPED if number % 2 else TYPED + b"Content-Length: 33\r\n\r\n{")
        with server.client(timeout=5.0) as client:
            assert client.get("/livez").status_code == 200
            assert client.post("/runs", json={"model": "mirror"}).status_code == 201
        assert len(list(Path(f"/proc/{worker}/task").iterdir())) < 50
    assert server.stop() == (0, "")


def test_a_slow_request_is_refused_at_its_deadline(start_server: Callable[..., Server]) -> None:
    server = start_server("1", "1")
    for begin in (TYPED + b"X: ", TYPED + b"Content-Length: 100000\r\n\r\n"):
        with connect(server) as connection:
            connection.sendall(begin)
            connection.settimeout(0.1)
            for _ in range(100):
                try:
                    connection.sendall(b"x")
                    first = connection.recv(65536)
                    break
                except TimeoutError:
                    continue
            else:
                raise AssertionError("the server still waits for the rest")
        assert first.startswith(b"HTTP/1.1 408 ")
        assert b"/problems/request-timeout" in first


def test_a_client_that_does_not_read_its_response_is_disconnected(
    start_server: Callable[..., Server], settings: Settings, submit: Submit, manual_worker: ManualWorker
) -> None:
    run_id = submit()
    claim = manual_worker.claim(run_id)
    large = b'"' + b"x" * (64 * CHUNK) + b'"'
    manual_worker.succeed(claim, stored=FileStore(settings.artifacts).put(run_id, claim.number, large))
    server = start_server("1", "1")
    (worker,) = until(lambda: children(server.process.pid))
    results = Path(settings.artifacts)

    def reads() -> bool:
        """Whether the server has the result open."""
        return any(path.is_relative_to(results) for path in _open_files(worker))

    with connect(server) as connection:
        connection.sendall(GET % f"/runs/{run_id}/result".encode())
        until(reads)
        until(lambda: not reads())
        taken = 0
        try:
            while piece := connection.recv(65536):
                taken += len(piece)
        except ConnectionResetError:
            pass
        assert taken < len(large)
    with server.client() as client:
        assert len(client.get(f"/runs/{run_id}/result").content) == len(large)
    assert server.stop() == (0, "")


def _open_files(pid: int) -> list[Path]:
    found = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(descriptor.readlink())
        except OSError:
            continue
    return found


def test_streams_are_freed_when_their_clients_disconnect(start_server: Callable[..., Server], submit: Submit) -> None:
    server = start_server(HOLDFAST_MAX_STREAMS="3")
    path = f"/runs/{submit()}".encode()
    stream = (GET % (path + b"/events")).replace(b"\r\n\r\n", b"\r\nAccept: text/event-stream\r\n\r\n")
    with connect(server) as first, connect(server) as second, connect(server) as third:
        first.sendall(stream)
        second.sendall(stream)
        third.sendall(GET % (path + b"?wait=60"))
        until(lambda: open_streams(server) == 3)
        with connect(server) as refused:
            refused.sendall(stream)
            assert b" 503 " in refused.recv(65536).partition(b"\r\n")[0]
    until(lambda: open_streams(server) == 0)


def test_shutdown_answers_requests_in_flight_and_closes_other_connections(server: Server, submit: Submit) -> None:
    run_id = submit()
    with connect(server) as waiting, connect(server) as idle, connect(server) as partial:
        idle.sendall(GET % b"/livez")
        assert b" 200 " in idle.recv(65536)
        partial.sendall(TYPED)
        waiting.sendall(GET % f"/runs/{run_id}?wait=60".encode())
        until(lambda: open_streams(server) == 1)
        assert server.stop() == (0, "")
        assert received(waiting) == (200, "")
        assert idle.recv(65536) == b""
        assert received(partial) == (408, "request-timeout")


def test_readers_of_large_results_leave_threads_for_other_requests(
    start_server: Callable[..., Server], settings: Settings, submit: Submit, manual_worker: ManualWorker
) -> None:
    run_id = submit()
    claim = manual_worker.claim(run_id)
    large = b'"' + b"x" * (64 * CHUNK) + b'"'
    manual_worker.succeed(claim, stored=FileStore(settings.artifacts).put(run_id, claim.number, large))
    server = start_server(HOLDFAST_MAX_STREAMS="2")
    with ExitStack() as stack:
        statuses = []
        for _ in range(40):
            connection = stack.enter_context(connect(server))
            connection.sendall(GET % f"/runs/{run_id}/result".encode())
            statuses.append(connection.recv(12)[9:])
        assert (statuses.count(b"200"), statuses.count(b"503")) == (2, 38)
        with server.client() as client:
            assert client.get("/livez").status_code == 200
            refused = client.get(f"/runs/{run_id}/result")
            assert (refused.json()["type"], refused.headers["Retry-After"]) == ("/problems/too-many-streams", "5")
    with server.client() as client:
        until(lambda: client.get(f"/runs/{run_id}/result").status_code == 200)
    assert server.stop()[0] == 0
