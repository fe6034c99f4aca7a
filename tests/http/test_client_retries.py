"""The HTTP clients when requests fail: what they repeat, for how long, and how streams are resumed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic
from typing import Any

import pytest

import holdfast
from holdfast import AsyncHttpClient, HttpClient
from holdfast.domain.errors import NotAllowed, ServerUnreachable
from holdfast.http_client.transport import pause_before_next_wait, retry_after
from holdfast.runtime.settings import Settings


class ScriptedServer(BaseHTTPRequestHandler):
    """A server that sends the responses of a script, and records the requests."""

    protocol_version = "HTTP/1.1"
    script: list[Callable[[ScriptedServer], None]]
    requests: list[tuple[str, str | None, bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.requests.append((self.path, self.headers.get("Idempotency-Key"), body))
        self.script.pop(0)(self)

    do_GET = do_POST  # noqa: N815

    def respond(self, status: int, document: Any = None, **headers: str) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def hang_up(self) -> None:
        self.close_connection = True
        self.connection.close()

    def log_message(self, *args: object) -> None:
        pass


RUN = {
    "run_id": "01994c3e-7d1c-7c62-bd1b-0e2d1c5f6a7b",
    "model": "mirror",
    "status": "PENDING",
    "parameters": {},
    "payload_hash": "",
    "queue": "default",
    "priority": 0,
    "created_at": "2026-01-01T00:00:00Z",
    "started_at": None,
    "finished_at": None,
    "attempt_count": 0,
    "max_attempts": 3,
    "progress": None,
    "last_error": None,
    "result_ref": None,
    "lease_owner": None,
    "lease_expires_at": None,
    "job_id": None,
    "tags": [],
}


@pytest.fixture
def scripted() -> Iterator[type[ScriptedServer]]:
    handler = type("Recording", (ScriptedServer,), {"script": [], "requests": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    handler.url = f"http://127.0.0.1:{server.server_port}"  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield handler
    server.shutdown()
    thread.join()
    server.server_close()


def no_room(server: ScriptedServer) -> None:
    server.respond(200, RUN, Retry_After="1")


def ended(server: ScriptedServer) -> None:
    server.respond(200, RUN | {"status": "SUCCEEDED"})


def test_client_pauses_if_the_server_has_no_capacity_for_its_wait(
    scripted: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted.script[:] = [no_room, no_room, no_room, ended]
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    with HttpClient(scripted.url, settings=settings) as client:
        assert client.wait(RUN["run_id"]).status == "SUCCEEDED"
    assert pauses == [1.0, 1.0]
    assert ["wait=" in path for path, _, _ in scripted.requests] == [False, True, True, True]


async def test_asynchronous_client_pauses_if_the_server_has_no_capacity(
    scripted: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted.script[:] = [no_room, no_room, ended]
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("holdfast.http_client.asynchronous.asyncio.sleep", pause)
    async with AsyncHttpClient(scripted.url, settings=settings) as client:
        assert (await client.wait(RUN["run_id"])).status == "SUCCEEDED"
    assert 1.0 in pauses


def test_complete_wait_is_followed_by_no_pause() -> None:
    assert pause_before_next_wait(1.0, monotonic()) == 0.0
    assert pause_before_next_wait(None, monotonic() + 60) == 1.0
    assert pause_before_next_wait(5.0, monotonic() + 60) == 5.0


def test_a_submission_is_repeated_with_its_key(scripted: Any, settings: Settings) -> None:
    scripted.script[:] = [
        lambda server: server.respond(503, {"detail": "busy"}, Retry_After="0"),
        lambda server: server.hang_up(),
        lambda server: server.respond(502, "a proxy's page"),
        lambda server: server.respond(429, {"detail": "slow down"}, Retry_After="0"),
        lambda server: server.respond(201, RUN),
    ]
    with HttpClient(scripted.url, settings=settings) as client:
        assert client.submit("mirror", {"n": 1}).id == RUN["run_id"]
    keys = {key for _, key, _ in scripted.requests}
    assert len(scripted.requests) == 5
    assert len(keys) == 1
    assert len({body for _, _, body in scripted.requests}) == 1


def test_request_that_cannot_be_repeated_is_sent_once(scripted: Any, settings: Settings) -> None:
    scripted.script[:] = [
        lambda server: server.hang_up(),
        lambda server: server.respond(503, {"detail": "unsure"}, Retry_After="0"),
    ]
    with HttpClient(scripted.url, settings=settings) as client:
        for _ in range(2):
            with pytest.raises(ServerUnreachable):
                client.retry(RUN["run_id"])
    assert len(scripted.requests) == 2


def test_request_that_was_not_sent_is_always_repeated(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    gone = HttpClient("http://127.0.0.1:1", settings=settings, retry_seconds=0.2)
    with gone, pytest.raises(ServerUnreachable, match="does not respond"):
        gone.retry(RUN["run_id"])
    assert pauses


def test_requests_are_not_repeated_for_longer_than_retry_seconds(scripted: Any, settings: Settings) -> None:
    scripted.script[:] = [lambda server: server.respond(503, {"detail": "long gone"}, Retry_After="3600")]
    busy = HttpClient(scripted.url, settings=settings, retry_seconds=5)
    with busy, pytest.raises(ServerUnreachable, match="long gone"):
        busy.get(RUN["run_id"])
    gone = HttpClient("http://127.0.0.1:1", settings=settings, retry_seconds=0.2)
    with gone, pytest.raises(ServerUnreachable, match="does not respond"):
        gone.queues()


def test_a_refusal_is_not_repeated(scripted: Any, settings: Settings) -> None:
    problem = {"type": "/problems/unauthenticated", "status": 401, "detail": "This request needs a token."}
    scripted.script[:] = [
        lambda server: server.respond(401, problem),
        lambda server: server.respond(500, {"detail": "broken"}),
    ]
    with HttpClient(scripted.url, settings=settings) as client:
        with pytest.raises(NotAllowed) as refused:
            client.queues()
        assert refused.value.problem == problem
        with pytest.raises(holdfast.HoldfastError, match="broken"):
            client.queues()
    assert len(scripted.requests) == 2


def test_stream_that_breaks_is_resumed(scripted: Any, settings: Settings) -> None:
    def sending(*lines: str) -> Callable[[ScriptedServer], None]:
        def respond(server: ScriptedServer) -> None:
            server.send_response(200)
            server.send_header("Content-Type", "text/event-stream")
            server.send_header("Connection", "close")
            server.end_headers()
            server.wfile.write("".join(line + "\n" for line in lines).encode())
            server.close_connection = True

        return respond

    def event(seq: int) -> str:
        document = {"seq": seq, "type": "X", "from": None, "to": None, "reason": None, "attempt": 0}
        return f"id: {seq}\ndata: {json.dumps({**document, 'at': '2026-01-01T00:00:00Z'})}\n"

    scripted.script[:] = [
        sending(": hello", "", event(1)),
        lambda server: server.hang_up(),
        lambda server: server.respond(503, {"detail": "busy"}, Retry_After="0"),
        sending(event(2), "id: 3\ndata: broken off in the mid"),
        sending(event(3), 'id: 3\nevent: end\ndata: {"status": "SUCCEEDED"}\n'),
    ]
    with HttpClient(scripted.url, settings=settings) as client:
        assert [one.seq for one in client.follow_events(RUN["run_id"])] == [1, 2, 3]


def test_retry_after_is_seconds_or_a_date() -> None:
    assert retry_after({"retry-after": "7"}) == 7
    assert retry_after({"retry-after": "Wed, 01 Jan 2020 00:00:00 GMT"}) == 0
    assert retry_after({}) is None
    assert retry_after({"retry-after": "soon"}) is None


def test_client_without_a_valid_url_is_refused(settings: Settings) -> None:
    with pytest.raises(holdfast.HoldfastError, match="HOLDFAST_URL"):
        HttpClient(settings=settings)
    with pytest.raises(holdfast.HoldfastError, match="http://"):
        HttpClient("localhost:8080", settings=settings)
