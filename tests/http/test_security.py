"""Which requests are refused, and the security headers of every response."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from flask import Flask
from flask.testing import FlaskClient

from holdfast import AsyncHttpClient, HttpClient
from holdfast.domain.errors import ConfigurationError
from holdfast.http.nouns import NOUNS
from holdfast.runtime.settings import Settings
from tests.http.conftest import Server
from tests.http.test_submit import problem

BODY = {"model": "mirror"}


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1:8080", "127.8.9.1", "[::1]:80", "app.localhost", "LOCALHOST."]
)
def test_loopback_names_are_accepted_as_host(api: FlaskClient, host: str) -> None:
    assert api.get("/runs", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "10.0.0.1", "x@localhost", "localhost:x", "", "[::2]", "a/b"]
)
def test_unknown_host_is_refused(api: FlaskClient, host: str) -> None:
    for path in ("/runs", "/livez", "/nope"):
        answer = api.get(path, headers={"Host": host})
        assert (answer.status_code, problem(answer)) == (403, "unknown-host")


def test_configured_hosts_are_accepted(settings: Settings, make_app: Callable[[Settings], Flask]) -> None:
    api = make_app(replace(settings, hosts=("api.example", ".svc.local"))).test_client()
    for host in ("api.example:8080", "holdfast.svc.local"):
        assert api.get("/livez", headers={"Host": host}).status_code == 200
    assert api.get("/livez", headers={"Host": "other.example"}).status_code == 403


def test_numeric_address_is_accepted_by_a_server_bound_elsewhere(
    settings: Settings, make_app: Callable[[Settings], Flask]
) -> None:
    api = make_app(replace(settings, host="0.0.0.0")).test_client()
    assert api.get("/livez", headers={"Host": "10.0.0.1:8080"}).status_code == 200
    assert api.get("/livez", headers={"Host": "evil.example"}).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:9999"},
        {"Origin": "file://"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://localhost", "Sec-Fetch-Site": "cross-site"},
    ],
)
def test_pages_of_other_sites_change_nothing(api: FlaskClient, headers: dict[str, str]) -> None:
    answer = api.post("/runs", json=BODY, headers=headers)
    assert (answer.status_code, problem(answer)) == (403, "cross-site")
    for method in ("PUT", "PATCH", "DELETE"):
        assert api.open("/runs", method=method, headers=headers).status_code == 403
    assert api.get("/runs", headers=headers).json["items"] == []


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://localhost"},
        {"Origin": "http://localhost:80", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "https://localhost:443", "Host": "localhost:443"},
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_pages_of_this_server_may_change_something(api: FlaskClient, headers: dict[str, str]) -> None:
    assert api.post("/runs", json=BODY, headers=headers).status_code in (200, 201)


def test_every_response_has_security_headers(api: FlaskClient) -> None:
    answers = [
        api.get(path)
        for path in ("/runs", "/runs/x", "/nope", "/livez", "/metrics", "/openapi.json", "/docs", "/problems", "/")
    ]
    answers += [api.delete("/runs"), api.post("/runs", data="x"), api.options("/runs", headers={"Origin": "http://x"})]
    for answer in answers:
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["X-Request-Id"]
        assert answer.headers["Cache-Control"]
        assert not [name for name, _ in answer.headers if name.startswith("Access-Control-")]


def test_docs_page_loads_nothing_from_elsewhere(api: FlaskClient) -> None:
    page = api.get("/docs")
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "<script" not in page.text
    for mark in ("http://", "https://", "//cdn", "url(", "@import", "<link", "<img"):
        assert mark not in page.text
    for noun in NOUNS:
        for route in noun.routes:
            assert f"<code>{route.path}</code>" in page.text


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("DELETE", "/runs", "GET, HEAD, POST"),
        ("GET", "/batches", "POST"),
        ("GET", "/queues/x/pause", "POST"),
        ("OPTIONS", "/summary", "GET, HEAD"),
        ("TRACE", "/livez", "GET, HEAD"),
    ],
)
def test_other_methods_are_refused(api: FlaskClient, method: str, path: str, allow: str) -> None:
    answer = api.open(path, method=method)
    assert (answer.status_code, problem(answer)) == (405, "method-not-allowed")
    assert answer.headers["Allow"] == allow


@pytest.mark.parametrize("path", ["/nope", "/runs/", "/RUNS", "/queues/a/b/pause", "/%00", "/runs/%2e%2e/x"])
def test_unknown_path_gets_a_problem_document(api: FlaskClient, path: str) -> None:
    answer = api.get(path)
    assert answer.status_code == 404
    assert problem(answer) in ("not-found", "run-not-found")


def test_response_to_head_has_no_body(api: FlaskClient) -> None:
    answer = api.head("/runs")
    assert (answer.status_code, answer.data) == (200, b"")
    assert int(answer.headers["Content-Length"]) > 0


def test_internal_error_reveals_nothing(
    app: Flask, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("select secret from inside")

    monkeypatch.setitem(app.view_functions, "summary.getSummary", broken)
    answer = app.test_client().get("/summary")
    assert (answer.status_code, problem(answer)) == (500, "internal-error")
    assert "secret" not in answer.text
    assert "select secret from inside" in caplog.text


def test_invalid_http_gets_a_problem_document(server: Server) -> None:
    import socket
    from urllib.parse import urlsplit

    parts = urlsplit(server.url)

    def response_to(request: bytes) -> tuple[int, bytes]:
        with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
            connection.sendall(request)
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"application/problem+json" in head
        return int(head.split()[1]), body

    assert response_to(b"NONSENSE\r\n\r\n")[0] == 400
    assert response_to(b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")[0] == 414
    status, body = response_to(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 9000 + b"\r\n\r\n")
    assert status == 431
    assert b"8190" in body
    many = b"".join(b"X-%d: 1\r\n" % number for number in range(200))
    assert response_to(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + many + b"\r\n")[0] == 431


@pytest.mark.parametrize("token", ["hf_se cret", "hf_secret\n", "hf_secret\r\nX-Admin: 1", "hf_secret\0", "hf_secret…"])
@pytest.mark.parametrize("client", [HttpClient, AsyncHttpClient])
def test_token_with_invalid_characters_is_refused_without_showing_it(
    settings: Settings, client: type[HttpClient | AsyncHttpClient], token: str
) -> None:
    with pytest.raises(ConfigurationError, match="HOLDFAST_TOKEN") as refused:
        client("http://localhost:1", token, settings=settings)
    assert "hf_" not in str(refused.value)
