"""Tokens: who may do what."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from flask import Flask
from flask.testing import FlaskClient

from holdfast.domain.errors import BadInput
from holdfast.domain.ids import new_id
from holdfast.domain.tokens import SCOPES, is_token, mint
from holdfast.drivers.psycopg import transact
from holdfast.http.nouns import NOUNS
from holdfast.http.routes import ANY_SCOPE
from holdfast.ops.tokens import list_tokens, revoke_token
from holdfast.runtime.settings import Settings
from tests.http.conftest import Mint, bearer
from tests.http.manual_worker import ManualWorker
from tests.http.test_submit import problem


def test_everything_is_allowed_on_loopback_without_any_token(api: FlaskClient, make_token: Mint) -> None:
    assert api.get("/runs").status_code == 200
    make_token()
    answer = api.get("/runs")
    assert (answer.status_code, problem(answer)) == (401, "unauthenticated")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_revoking_the_last_token_does_not_reopen_the_server(
    settings: Settings, make_app: Callable[[Settings], Flask], connection: psycopg.Connection, make_token: Mint
) -> None:
    token, token_id = make_token()
    transact(connection, lambda: revoke_token(token_id))
    api = make_app(settings).test_client()
    for headers in ({}, bearer(token)):
        answer = api.get("/runs", headers=headers)
        assert (answer.status_code, problem(answer)) == (401, "unauthenticated")
        assert "holdfast tokens create" in answer.json["detail"]
    assert api.get("/runs", headers=bearer(make_token()[0])).status_code == 200


def test_server_bound_elsewhere_always_requires_a_token(
    settings: Settings, make_app: Callable[[Settings], Flask]
) -> None:
    api = make_app(replace(settings, host="0.0.0.0")).test_client()
    assert api.get("/runs").status_code == 401
    assert api.get("/livez").status_code == 200
    assert api.get("/healthz").status_code == 200
    assert api.get("/metrics").status_code == 401


def test_token_is_shown_once_and_stored_as_a_digest(connection: psycopg.Connection, make_token: Mint) -> None:
    token, token_id = make_token(name="ci")
    kept = connection.execute("select tokens::text from holdfast.tokens").fetchone()
    assert kept is not None
    assert token.split("_")[1] not in kept[0]
    (listed,) = transact(connection, list_tokens)
    assert (listed.id, listed.name, listed.hint, listed.status) == (token_id, "ci", token.split("_")[1][-4:], "active")
    assert listed.last_used_at is None


def test_valid_token_is_admitted_and_its_use_is_recorded(
    api: FlaskClient, connection: psycopg.Connection, make_token: Mint
) -> None:
    token, _ = make_token("runs:read")
    assert api.get("/runs", headers=bearer(token)).status_code == 200
    used = transact(connection, list_tokens)[0].last_used_at
    assert used is not None
    assert api.get("/runs", headers={"Authorization": f"bearer  {token} "}).status_code == 200
    assert transact(connection, list_tokens)[0].last_used_at == used


def _another_checksum(token: str) -> str:
    return token[:-1] + ("0" if token[-1] != "0" else "1")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda token: "",
        lambda token: "hf_abc_def",
        _another_checksum,
        lambda token: token.replace("hf_", "gh_"),
        lambda token: mint(secrets.token_bytes(32), new_id(), "x", ["admin"], by="x")[0],
        lambda token: token + "x",
    ],
)
def test_a_bad_token_is_refused(api: FlaskClient, make_token: Mint, spoil: Callable[[str], str]) -> None:
    token, _ = make_token()
    answer = api.get("/runs", headers=bearer(spoil(token)))
    assert (answer.status_code, problem(answer)) == (401, "unauthenticated")
    assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"]
    assert token not in answer.text


def test_a_bad_token_is_refused_even_where_none_is_needed(api: FlaskClient) -> None:
    assert api.get("/runs", headers=bearer("hf_x_y")).status_code == 401
    assert api.get("/runs", headers={"Authorization": "Basic dTpw"}).status_code == 401


def test_a_token_can_be_revoked_and_can_expire(
    api: FlaskClient, connection: psycopg.Connection, make_token: Mint
) -> None:
    token, token_id = make_token()
    other, other_id = make_token(days=1)
    assert api.get("/runs", headers=bearer(token)).status_code == 200
    transact(connection, lambda: revoke_token(token_id))
    assert api.get("/runs", headers=bearer(token)).status_code == 401
    assert api.get("/runs", headers=bearer(other)).status_code == 200
    connection.execute(
        "update holdfast.tokens set created_at = now() - interval '3 days', expires_at = now() - interval '1 second'"
        " where id = %s",
        [other_id],
    )
    assert api.get("/runs", headers=bearer(other)).status_code == 401
    assert api.get("/runs").status_code == 401
    assert {token.status for token in transact(connection, list_tokens)} == {"expired", "revoked"}


@pytest.mark.parametrize("scope", SCOPES)
def test_every_route_requires_its_scope(api: FlaskClient, make_token: Mint, scope: str) -> None:
    token, _ = make_token(scope)
    for noun in NOUNS:
        for route in noun.routes:
            if route.scope is None:
                continue
            path = route.path.format(
                run_id=new_id(), worker_id=new_id(), name="x", kind="x", id=new_id(), job_id=new_id()
            )
            without_token = api.open(path, method=route.method)
            assert without_token.status_code == 401, path
            answer = api.open(path, method=route.method, headers=bearer(token))
            allowed = scope in (route.scope, "admin") or route.scope == ANY_SCOPE
            assert (answer.status_code == 403) is not allowed, (route.method, path, answer.status_code)
            if not allowed:
                assert problem(answer) == "insufficient-scope"
                assert f'scope="{route.scope}"' in answer.headers["WWW-Authenticate"]


def test_keys_belong_to_the_token_that_sent_them(api: FlaskClient, make_token: Mint) -> None:
    ask: dict[str, Any] = {"json": {"model": "mirror", "dedupe": "off"}}
    ids = set()
    for token in (make_token()[0], make_token()[0]):
        first = api.post("/runs", headers={**bearer(token), "Idempotency-Key": "same"}, **ask)
        again = api.post("/runs", headers={**bearer(token), "Idempotency-Key": "same"}, **ask)
        assert (first.status_code, again.status_code) == (201, 200)
        ids.add(first.json["run_id"])
    assert len(ids) == 2


def test_events_name_the_token_that_caused_them(api: FlaskClient, make_token: Mint) -> None:
    headers = bearer(make_token(name="alice")[0])
    run = api.post("/runs", json={"model": "mirror"}, headers=headers).json
    assert api.get(f"/runs/{run['run_id']}/provenance", headers=headers).json["submitted_by"] == "alice"
    assert api.post(f"/runs/{run['run_id']}/cancel", headers=headers).json["reason"] == "cancelled by alice"
    api.post(f"/runs/{run['run_id']}/retry", headers=headers)
    events = api.get(f"/runs/{run['run_id']}/events", headers=headers).json["items"]
    assert events[-1]["reason"] == "by alice"
    assert api.post("/queues/default/pause", headers=headers).json["paused_by"] == "alice"


def test_token_has_prefix_secret_and_checksum() -> None:
    text, stored = mint(b"\0" * 32, new_id(), "zero", ["admin", "runs:read"], by="x")
    assert is_token(text)
    assert text.startswith("hf_000")
    assert stored.scopes == ("runs:read", "admin")
    for wrong in ({"name": ""}, {"name": "x" * 65}, {"scopes": []}, {"scopes": ["root"]}, {"days": 0.0}):
        given: dict[str, Any] = {"name": "n", "scopes": ["admin"], "by": "x", **wrong}
        with pytest.raises(BadInput):
            mint(b"\0" * 32, new_id(), given.pop("name"), given.pop("scopes"), **given)


def test_dedupe_shows_nothing_that_the_token_may_not_read(
    api: FlaskClient, make_token: Mint, manual_worker: ManualWorker
) -> None:
    reader, writer = bearer(make_token()[0]), bearer(make_token("runs:write")[0])
    body = {"model": "typed", "parameters": {"scenario": "x", "requested_at": "secret"}, "tags": ["secret"]}
    first = api.post("/runs", json=body, headers=reader).json
    claim = manual_worker.claim(first["run_id"])
    manual_worker.progress(claim, 1, 2)
    asked = {"model": "typed", "parameters": {"scenario": "x"}}
    found = api.post("/runs", json=asked, headers=writer)
    assert (found.status_code, found.json["run_id"]) == (200, first["run_id"])
    assert found.json["status"] == "PENDING"
    assert found.json["parameters"] == asked["parameters"]
    batch = api.post("/batches", json={"runs": [asked | {"dedupe": "active"}]}, headers=writer)
    for text in (found.text, batch.text):
        assert "secret" not in text
        assert manual_worker.id not in text
    assert api.post("/runs", json=asked, headers=reader).json["progress"] == {"done": 1, "total": 2}


def test_a_replayed_job_shows_nothing_that_the_token_may_not_read(
    api: FlaskClient, make_token: Mint, manual_worker: ManualWorker
) -> None:
    reader, writer = bearer(make_token()[0]), bearer(make_token("runs:write")[0])
    body = {"name": "nightly", "tasks": [{"entrypoint": "mirror"}]}
    first = api.post("/jobs", json=body, headers=writer | {"Idempotency-Key": "k"}).json
    (task,) = api.get(first["links"]["tasks"], headers=reader).json["items"]
    manual_worker.run(task["run_id"], 1)
    again = api.post("/jobs", json=body, headers=writer | {"Idempotency-Key": "k"})
    assert (again.status_code, again.json) == (200, first)


def test_cancel_and_retry_show_nothing_that_the_token_may_not_read(
    api: FlaskClient, make_token: Mint, manual_worker: ManualWorker
) -> None:
    reader, writer = bearer(make_token()[0]), bearer(make_token("runs:write")[0])
    secret = {"model": "typed", "parameters": {"scenario": "secret"}, "queue": "secret", "tags": ["secret"]}
    first = api.post("/runs", json=secret, headers=reader).json
    claim = manual_worker.claim(first["run_id"])
    manual_worker.progress(claim, 1, 2)
    path = f"/runs/{first['run_id']}"
    asked = api.post(f"{path}/cancel", json={"reason": "secret"}, headers=reader)
    again = api.post(f"{path}/cancel", headers=writer)
    assert (again.status_code, again.json["status"]) == (202, "RUNNING")
    manual_worker.stop(claim)
    over, retried = (api.post(f"{path}/{verb}", headers=writer) for verb in ("cancel", "retry"))
    assert [over.json["status"], retried.json["status"]] == ["CANCELLED", "PENDING"]
    for answer in (again, over, retried):
        assert answer.json.keys() == asked.json.keys()
        assert (answer.json["run_id"], answer.json["created_at"]) == (first["run_id"], first["created_at"])
        assert not {"secret", "typed", manual_worker.id, first["payload_hash"]} & {
            str(value) for value in answer.json.values()
        }
        assert "secret" not in answer.text
    assert api.post(f"{path}/cancel", headers=reader).json["parameters"]["scenario"] == "secret"


def test_changing_a_job_shows_nothing_that_the_token_may_not_read(
    api: FlaskClient, make_token: Mint, manual_worker: ManualWorker
) -> None:
    reader, writer = bearer(make_token(name="secret")[0]), bearer(make_token("runs:write")[0])
    tasks = [{"entrypoint": "mirror", "kwargs": {"n": n}} for n in (1, 2)]
    job = api.post("/jobs", json={"name": "secret", "description": "secret", "tasks": tasks}, headers=reader).json
    added = {"entrypoint": "mirror", "key": "k"}
    task = api.post(job["links"]["tasks"], json=added | {"tags": ["secret"]}, headers=reader).json
    claim = manual_worker.claim(task["run_id"])
    manual_worker.progress(claim, 1, 2)
    found = api.post(job["links"]["tasks"], json=added, headers=writer).json
    assert (found["run_id"], found["status"], found["progress"]) == (task["run_id"], "PENDING", None)
    assert found["tags"] == []
    path = job["links"]["self"]
    stopped = api.post(f"{path}/cancel", headers=writer)
    manual_worker.stop(claim)
    retried = api.post(f"{path}/retry", headers=writer)
    assert (stopped.status_code, retried.json["reopened"]) == (202, 3)
    for answer in (stopped, retried):
        assert job.keys() <= answer.json.keys()
        assert answer.json["job_id"] == job["job_id"]
        assert "secret" not in answer.text
        assert (answer.json["total_tasks"], answer.json["cancelled_tasks"]) == (0, 0)
    assert api.post(f"{path}/cancel", headers=reader).json["total_tasks"] == 3
