"""Server-sent events: in order, resumable, and ended when no more can follow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from holdfast.http import hub, streams
from holdfast.http.service import EXTENSION
from holdfast.runtime.settings import Settings
from tests.http.conftest import Server, Submit
from tests.http.manual_worker import ManualWorker
from tests.http.test_submit import problem

SSE = {"Accept": "text/event-stream"}


def messages(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Server-sent events, without comments and retry hints."""
    one: dict[str, Any] = {}
    for line in lines:
        if line.startswith((":", "retry:")):
            continue
        if line:
            name, _, value = line.partition(": ")
            one[name] = json.loads(value) if name == "data" else value
        elif one:
            yield one
            one = {}


def stream(api: FlaskClient, path: str, **headers: str) -> Iterator[dict[str, Any]]:
    answer = api.get(path, headers={**SSE, **headers}, buffered=False)
    assert answer.status_code == 200, answer.text
    assert answer.mimetype == "text/event-stream"
    text = "".join(piece.decode() for piece in answer.iter_encoded())
    answer.close()
    return messages(iter(text.split("\n")))


def test_stream_of_an_ended_run_has_all_events(api: FlaskClient, submit: Submit, manual_worker: ManualWorker) -> None:
    run_id = submit()
    manual_worker.run(run_id, 1)
    received = list(stream(api, f"/runs/{run_id}/events"))
    assert [message.get("event", "message") for message in received] == ["message", "message", "message", "end"]
    assert [message["id"] for message in received] == ["1", "2", "3", "3"]
    assert [message["data"] for message in received[:-1]] == api.get(f"/runs/{run_id}/events").json["items"]
    assert received[-1]["data"] == {"status": "SUCCEEDED"}


def test_stream_is_resumed_after_the_last_event_id(
    api: FlaskClient, submit: Submit, manual_worker: ManualWorker
) -> None:
    run_id = submit()
    manual_worker.run(run_id, 1)
    received = list(stream(api, f"/runs/{run_id}/events", **{"Last-Event-ID": "2"}))
    assert [message["id"] for message in received] == ["3", "3"]
    after = api.get(f"/runs/{run_id}/events", headers={**SSE, "Last-Event-ID": "3"})
    assert (after.status_code, after.data) == (204, b"")
    fresh = list(stream(api, f"/runs/{run_id}/events", **{"Last-Event-ID": "nonsense"}))
    assert len(fresh) == 4


def test_logs_are_streamed_too(api: FlaskClient, submit: Submit, manual_worker: ManualWorker) -> None:
    run_id = submit()
    claim = manual_worker.claim(run_id)
    manual_worker.log(claim, *(f"line {n}" for n in range(5)))
    manual_worker.succeed(claim, 1)
    received = list(stream(api, f"/runs/{run_id}/logs?limit=2"))
    assert [message["data"]["message"] for message in received[:-1]] == [f"line {n}" for n in range(5)]
    assert received[-1]["event"] == "end"
    empty = submit()
    manual_worker.run(empty, 1)
    assert [message["event"] for message in stream(api, f"/runs/{empty}/logs")] == ["end"]


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("text/event-stream", "text/event-stream"),
        ("application/json, text/event-stream;q=0.5", "application/json"),
        ("application/json;q=0.5, text/event-stream", "text/event-stream"),
        ("text/html, */*", "application/json"),
    ],
)
def test_accept_header_chooses_between_list_and_stream(
    api: FlaskClient, submit: Submit, manual_worker: ManualWorker, accept: str, kind: str
) -> None:
    run_id = submit()
    manual_worker.run(run_id, 1)
    assert api.get(f"/runs/{run_id}/events", headers={"Accept": accept}).mimetype == kind


def test_streams_above_the_limit_are_refused(
    settings: Settings, make_app: Callable[[Settings], Flask], submit: Submit, manual_worker: ManualWorker
) -> None:
    app = make_app(replace(settings, max_streams=2))
    run_id = submit()
    first, second = (app.test_client().get(f"/runs/{run_id}/events", headers=SSE, buffered=False) for _ in range(2))
    refused = app.test_client().get(f"/runs/{run_id}/events", headers=SSE)
    assert (refused.status_code, problem(refused)) == (503, "too-many-streams")
    assert int(refused.headers["Retry-After"]) > 0
    first.close()
    again = app.test_client().get(f"/runs/{run_id}/events", headers=SSE, buffered=False)
    assert again.status_code == 200
    again.close()
    second.close()
    assert app.extensions[EXTENSION].streams.open == 0
    assert app.test_client().get("/runs/nope/events", headers=SSE).status_code == 404
    assert app.extensions[EXTENSION].streams.open == 0


def test_stream_is_kept_alive_and_ends_after_its_lifetime(
    api: FlaskClient, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT", 0.02)
    monkeypatch.setattr(streams, "LIFETIME", 0.2)
    answer = api.get(f"/runs/{submit()}/events", headers=SSE, buffered=False)
    text = "".join(piece.decode() for piece in answer.iter_encoded())
    assert text.startswith("retry: ")
    assert ": still here" in text
    assert "event: end" not in text
    answer.close()


def test_stream_that_is_woken_often_still_sends_keep_alives(
    api: FlaskClient, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT", 0.02)
    monkeypatch.setattr(streams, "LIFETIME", 0.2)
    monkeypatch.setattr(hub.Watch, "wait", lambda watch, timeout: True)
    answer = api.get(f"/runs/{submit()}/events", headers=SSE, buffered=False)
    assert b": still here" in b"".join(answer.iter_encoded())
    answer.close()


def test_live_events_reach_an_open_stream(server: Server, submit: Submit, manual_worker: ManualWorker) -> None:
    run_id = submit()
    with server.client() as client, client.stream("GET", f"/runs/{run_id}/events", headers=SSE) as answer:
        received = messages(answer.iter_lines())
        assert next(received)["data"]["type"] == "SUBMITTED"
        claim = manual_worker.claim(run_id)
        assert next(received)["data"]["type"] == "CLAIMED"
        manual_worker.succeed(claim, 1)
        assert next(received)["data"]["type"] == "SUCCEEDED"
        assert next(received)["event"] == "end"
        assert list(received) == []


def test_open_streams_do_not_delay_the_shutdown(server: Server, submit: Submit) -> None:
    run_id = submit()
    with server.client() as client, client.stream("GET", f"/runs/{run_id}/events", headers=SSE) as answer:
        received = messages(answer.iter_lines())
        assert next(received)["id"] == "1"
        code, output = server.stop()
        assert (code, output) == (0, "")
        assert list(received) == []
