"""Postgres outages: callers get errors immediately, and no acknowledged request is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from flask import Flask

from holdfast.drivers import psycopg as driver
from holdfast.drivers.psycopg import bounded
from holdfast.http.service import EXTENSION
from holdfast.runtime.settings import Settings
from tests.http.conftest import Submit
from tests.http.manual_worker import ManualWorker
from tests.http.proxy import Proxy
from tests.http.test_streams import SSE, messages
from tests.http.test_submit import problem

DEADLINE = 30.0


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    made = Proxy(database_url)
    yield made
    made.close()


@pytest.fixture
def app(settings: Settings, make_app: Callable[[Settings], Flask], proxy: Proxy) -> Flask:
    return make_app(replace(settings, database_url=proxy.url))


def until(look: Callable[[], Any]) -> Any:
    ends = time.monotonic() + DEADLINE
    tick = threading.Event()
    while time.monotonic() < ends:
        found = look()
        if found:
            return found
        tick.wait(0.05)
    raise AssertionError("it did not come to pass in time")


@pytest.mark.usefixtures("brief_waits")
def test_outage_is_reported_and_requests_succeed_afterwards(app: Flask, proxy: Proxy) -> None:
    api = app.test_client()
    assert api.get("/runs").status_code == 200
    proxy.cut()
    for _ in range(20):
        answer = api.post("/runs", json={"model": "mirror"})
        assert (answer.status_code, problem(answer)) == (503, "database-unreachable")
        assert int(answer.headers["Retry-After"]) >= 1
    assert api.get("/healthz").status_code == 503
    assert api.get("/livez").status_code == 200
    assert "metrics_db_up 0.0" in api.get("/metrics").text
    proxy.restore()
    until(lambda: api.post("/runs", json={"model": "mirror"}).status_code == 201)
    assert api.get("/healthz").status_code == 200


def test_database_that_hangs_is_reported_until_it_responds(
    app: Flask, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = app.test_client()
    assert api.post("/runs", json={"model": "mirror"}).status_code == 201
    monkeypatch.setattr(driver, "bounded", lambda waits, _: bounded(waits, 0.3))
    proxy.hang()
    for _ in range(5):
        answer = api.post("/runs", json={"model": "mirror"})
        assert (answer.status_code, problem(answer)) == (503, "database-unreachable")
    assert api.get("/livez").status_code == 200
    monkeypatch.undo()
    proxy.go_on()
    until(lambda: api.post("/runs", json={"model": "mirror", "dedupe": "off"}).status_code == 201)


def test_statement_that_takes_too_long_is_not_repeated(
    app: Flask, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = app.test_client()
    assert api.get("/runs").status_code == 200
    with psycopg.connect(database_url) as other:
        other.execute("lock table holdfast.runs in access exclusive mode")
        monkeypatch.setattr(driver, "bounded", lambda waits, _: bounded(waits, 0.3))
        answer = api.get("/runs")
        assert (answer.status_code, problem(answer)) == (503, "database-busy")
    monkeypatch.undo()
    assert api.get("/runs").status_code == 200


def test_broken_connections_fail_no_request(app: Flask, proxy: Proxy) -> None:
    api = app.test_client()
    api.get("/runs")
    for _ in range(3):
        proxy.cut()
        proxy.restore()
        answer = api.post("/runs", json={"model": "mirror", "dedupe": "off"})
        assert answer.status_code == 201, answer.text


def test_no_acknowledged_run_is_lost(app: Flask, proxy: Proxy, database_url: str) -> None:
    acknowledged: dict[str, str] = {}
    stop = threading.Event()
    refused: list[str | None] = []

    def post(number: int) -> None:
        api, count = app.test_client(), 0
        while not stop.is_set():
            key = f"{number}-{count}"
            body = {"model": "mirror", "parameters": {"key": key}}
            answer = api.post("/runs", json=body, headers={"Idempotency-Key": key})
            if answer.status_code in (200, 201):
                acknowledged[key] = answer.json["run_id"]
                count += 1
            else:
                assert answer.status_code == 503, answer.text
                refused.append(answer.headers.get("Retry-After"))

    threads = [threading.Thread(target=post, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        seen = len(acknowledged)
        until(lambda: len(acknowledged) > seen + 20)  # noqa: B023
        proxy.cut()
        gone = len(refused)
        until(lambda: len(refused) > gone + 20)  # noqa: B023
        proxy.restore()
    seen = len(acknowledged)
    until(lambda: len(acknowledged) > seen + 20)
    stop.set()
    for thread in threads:
        thread.join()
    assert all(refused)
    with psycopg.connect(database_url) as connection:
        kept = dict(connection.execute("select id::text, parameters ->> 'key' from holdfast.runs").fetchall())
    assert {kept[run_id] for run_id in acknowledged.values()} == set(acknowledged)
    assert len(kept) == len(set(kept.values()))


def test_stream_survives_an_outage(app: Flask, proxy: Proxy, submit: Submit, manual_worker: ManualWorker) -> None:
    run_id = submit()
    answer = app.test_client().get(f"/runs/{run_id}/events", headers=SSE, buffered=False)
    received = messages(line for piece in answer.iter_encoded() for line in piece.decode().split("\n"))
    assert next(received)["data"]["type"] == "SUBMITTED"
    proxy.cut()
    claim = manual_worker.claim(run_id)
    proxy.restore()
    assert next(received)["data"]["type"] == "CLAIMED"
    manual_worker.succeed(claim, 1)
    assert next(received)["data"]["type"] == "SUCCEEDED"
    assert next(received)["event"] == "end"
    answer.close()
    assert app.extensions[EXTENSION].streams.open == 0
