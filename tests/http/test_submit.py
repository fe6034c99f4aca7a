"""POST /runs: one run per request, however often it is sent."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from holdfast.domain.canonical import canonicalize
from holdfast.http.nouns import NOUNS
from tests.http.manual_worker import ManualWorker

BODY = {"model": "typed", "parameters": {"scenario": "high", "months": 24}}
ANONYMOUS = "01890a5d-ac96-774b-bcce-b302099a8057"


def problem(answer: Any) -> str:
    assert answer.content_type == "application/problem+json"
    assert answer.json["status"] == answer.status_code
    assert answer.json["title"]
    assert answer.json["detail"]
    assert answer.json["request_id"] == answer.headers["X-Request-Id"]
    return str(answer.json["type"]).removeprefix("/problems/")


def pointers(answer: Any) -> list[str]:
    return [error["pointer"] for error in answer.json["errors"]]


def test_new_run_is_created(api: FlaskClient) -> None:
    answer = api.post("/runs", json=BODY | {"tags": ["nightly"], "priority": 5, "queue": "models"})
    run = answer.json
    assert answer.status_code == 201
    assert answer.headers["Location"] == f"/runs/{run['run_id']}" == run["links"]["self"]
    assert "Idempotent-Replayed" not in answer.headers
    assert run["model"] == "typed"
    assert run["status"] == "PENDING"
    assert run["parameters"] == BODY["parameters"]
    assert run["payload_hash"] == canonicalize(BODY["parameters"])[1]
    assert (run["queue"], run["priority"], run["tags"]) == ("models", 5, ["nightly"])
    assert run["links"]["result"] == f"/runs/{run['run_id']}/result"
    read = api.get(answer.headers["Location"])
    assert read.json == run
    assert read.headers["ETag"] == answer.headers["ETag"]


def test_the_same_payload_finds_the_active_run(api: FlaskClient, manual_worker: ManualWorker) -> None:
    first = api.post("/runs", json=BODY)
    again = api.post("/runs", json={"parameters": {"months": 24.0, "scenario": "high"}, "model": "typed"})
    assert again.status_code == 200
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.json["run_id"] == first.json["run_id"]
    manual_worker.run(first.json["run_id"], {})
    assert api.post("/runs", json=BODY).status_code == 201


def test_dedupe_can_be_turned_off_and_a_task_may_have_its_own(api: FlaskClient, manual_worker: ManualWorker) -> None:
    ids = {api.post("/runs", json=BODY | {"dedupe": "off"}).json["run_id"] for _ in range(3)}
    assert len(ids) == 3
    first = api.post("/runs", json={"model": "once"}).json["run_id"]
    manual_worker.run(first, 1)
    assert api.post("/runs", json={"model": "once"}).json["run_id"] == first
    assert api.post("/runs", json={"model": "once", "dedupe": "active"}).json["run_id"] != first


def test_task_without_dedupe_creates_a_run_for_every_request(api: FlaskClient) -> None:
    answers = [api.post("/runs", json={"model": "each"}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [201, 201, 201]
    assert len({answer.json["run_id"] for answer in answers}) == 3
    asked = [api.post("/runs", json={"model": "each", "dedupe": "active"}).status_code for _ in range(2)]
    assert asked == [201, 200]


def test_only_the_key_matters_if_there_is_one(api: FlaskClient, manual_worker: ManualWorker) -> None:
    bare = api.post("/runs", json=BODY, headers={"Idempotency-Key": "report-42"})
    quoted = api.post("/runs", json=BODY, headers={"Idempotency-Key": '"report-42"'})
    other = api.post("/runs", json=BODY, headers={"Idempotency-Key": "report-43"})
    assert (bare.status_code, quoted.status_code, other.status_code) == (201, 200, 201)
    assert quoted.json["run_id"] == bare.json["run_id"] != other.json["run_id"]
    manual_worker.run(bare.json["run_id"], {})
    replayed = api.post("/runs", json=BODY, headers={"Idempotency-Key": "report-42"})
    assert replayed.json["status"] == "SUCCEEDED"


def test_key_may_be_in_the_body(api: FlaskClient) -> None:
    first = api.post("/runs", json=BODY | {"key": "k1"})
    assert api.post("/runs", json=BODY, headers={"Idempotency-Key": "k1"}).json["run_id"] == first.json["run_id"]
    clash = api.post("/runs", json=BODY | {"key": "k1"}, headers={"Idempotency-Key": "k2"})
    assert clash.status_code == 422
    assert pointers(clash) == ["/key"]


def test_key_with_another_payload_is_a_conflict_that_reveals_no_values(api: FlaskClient) -> None:
    secret = {"scenario": "hush-hush", "months": 24}
    api.post("/runs", json={"model": "typed", "parameters": secret}, headers={"Idempotency-Key": "k"})
    answer = api.post(
        "/runs",
        json={"model": "typed", "parameters": {"scenario": "loud", "months": 24}},
        headers={"Idempotency-Key": "k"},
    )
    assert answer.status_code == 409
    assert problem(answer) == "key-reused"
    assert pointers(answer) == ["/parameters/scenario"]
    assert "hush" not in answer.text
    model = api.post("/runs", json={"model": "mirror"}, headers={"Idempotency-Key": "k"})
    assert "/model" in pointers(model)


def test_ignored_fields_do_not_change_the_payload(api: FlaskClient) -> None:
    def ask(**extras: Any) -> Any:
        body = {"model": "typed", "parameters": {"scenario": "x", **extras}}
        return api.post("/runs", json=body, headers={"Idempotency-Key": "ignored"})

    first = ask(requested_at="10:00", client={"name": "a"})
    again = ask(requested_at="11:00", client={"name": "b"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert ask(scenario="y").status_code == 409


@pytest.mark.parametrize("key", ["", " ", "a b", "a\tb", "ä", "k" * 256, '""'])
def test_a_malformed_key_is_refused(api: FlaskClient, key: str) -> None:
    answer = api.post("/runs", json=BODY, headers={"Idempotency-Key": key.encode().decode("latin-1")})
    assert answer.status_code == 400
    assert problem(answer) == "bad-key"


def test_longest_key_is_accepted(api: FlaskClient) -> None:
    assert api.post("/runs", json=BODY, headers={"Idempotency-Key": "!" + "~" * 254}).status_code == 201


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        ({"model": "nope"}, "unknown-model", ["/model"]),
        ({"parameters": {}}, "bad-input", ["/model"]),
        ({"model": 3}, "bad-input", ["/model"]),
        ([], "bad-input", [""]),
        ({"model": "typed", "parameters": []}, "bad-input", ["/parameters"]),
        ({"model": "typed", "parameters": {}}, "bad-parameters", ["/parameters/scenario"]),
        ({"model": "typed", "parameters": {"scenario": 1}}, "bad-parameters", ["/parameters/scenario"]),
        ({"model": "typed", "parameters": {"scenario": "x", "a/b": 1}}, "bad-parameters", ["/parameters/a~1b"]),
        (BODY | {"id": "01994c3e-7d1c-7c62-bd1b-0e2d1c5f6a7b"}, "bad-input", ["/id"]),
        (BODY | {"submitter": 1, "settings": 2}, "bad-input", ["/settings", "/submitter"]),
        (BODY | {"priority": 101}, "bad-input", ["/priority"]),
        (BODY | {"priority": True}, "bad-input", ["/priority"]),
        (BODY | {"queue": ""}, "bad-input", ["/queue"]),
        (BODY | {"tags": ["x"] * 33}, "bad-input", ["/tags"]),
        (BODY | {"tags": ["x" * 65]}, "bad-input", ["/tags/0"]),
        (BODY | {"dedupe": "maybe"}, "bad-input", ["/dedupe"]),
        (BODY | {"run_after": "tomorrow"}, "bad-input", ["/run_after"]),
        (BODY | {"run_after": "2027-01-31T08:00:00"}, "bad-input", ["/run_after"]),
        (BODY | {"run_after": "2027-02-31T08:00:00Z"}, "bad-input", ["/run_after"]),
        (BODY | {"run_after": "0001-01-01T00:00:00+23:59"}, "bad-input", ["/run_after"]),
    ],
)
def test_bad_input_is_reported_by_pointer(api: FlaskClient, body: Any, kind: str, expected: list[str]) -> None:
    answer = api.post("/runs", json=body)
    assert answer.status_code == 422
    assert problem(answer) == kind
    assert pointers(answer) == expected
    assert api.get("/runs").json["items"] == []


def test_run_with_a_start_time_waits(api: FlaskClient) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    answer = api.post("/runs", json=BODY | {"run_after": at.isoformat()})
    assert answer.status_code == 201
    assert datetime.fromisoformat(answer.json["run_after"]) == at
    assert api.get(f"{answer.headers['Location']}/why").json["items"][0]["code"] == "scheduled"


def test_a_delay_is_added_to_the_time_of_the_database(api: FlaskClient) -> None:
    run = api.post("/runs", json=BODY | {"run_after": 90.5}).json
    times = [datetime.fromisoformat(run[name]) for name in ("created_at", "run_after")]
    assert times[1] - times[0] == timedelta(seconds=90.5)


@pytest.mark.parametrize("start", [True, 1e300, -1e300, 1e10, "90", "PT90S", [90], {}])
def test_value_that_is_no_start_time_is_refused(api: FlaskClient, start: Any) -> None:
    answer = api.post("/runs", json=BODY | {"run_after": start})
    assert (answer.status_code, pointers(answer)) == (422, ["/run_after"])
    assert api.get("/runs").json["items"] == []


def test_concurrent_requests_with_the_same_payload_create_one_run(app: Flask) -> None:
    def ask(number: int) -> tuple[int, str]:
        answer = app.test_client().post("/runs", json={"model": "mirror", "parameters": {"round": 1}})
        return answer.status_code, answer.json["run_id"]

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, range(32)))
    assert len({run_id for _, run_id in answers}) == 1
    assert sorted(status for status, _ in answers) == [200] * 31 + [201]


def test_many_runs_can_be_created_in_one_request(api: FlaskClient) -> None:
    body = {"runs": [{"model": "mirror", "parameters": {"n": n}, "key": f"batch-{n}"} for n in range(5)]}
    answer = api.post("/batches", json=body)
    assert answer.status_code == 201
    assert [item["run"]["parameters"]["n"] for item in answer.json["items"]] == list(range(5))
    again = api.post("/batches", json=body)
    assert again.status_code == 200
    assert [item["run"]["run_id"] for item in again.json["items"]] == [
        item["run"]["run_id"] for item in answer.json["items"]
    ]
    plain = api.post("/batches", json={"runs": [{"model": "mirror"}] * 1000})
    assert len({item["run"]["run_id"] for item in plain.json["items"]}) == 1000
    assert api.post("/batches", json={"runs": [{"model": "mirror"}] * 1001}).status_code == 422
    bad = api.post("/batches", json={"runs": [{"model": "mirror"}, {"model": "nope"}, {"model": "mirror", "queue": 7}]})
    assert bad.status_code == 422
    assert pointers(bad) == ["/runs/1/model", "/runs/2/queue"]


def test_trace_of_the_request_continues_in_the_run(api: FlaskClient, manual_worker: ManualWorker) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    given = api.post("/runs", json=BODY, headers={"traceparent": f"00-{trace}-b7ad6b7169203331-01"})
    sent = given.headers["traceparent"]
    assert sent.startswith(f"00-{trace}-")
    assert sent.endswith("-01")
    assert "b7ad6b7169203331" not in sent
    assert manual_worker.claim(given.json["run_id"]).traceparent == sent
    assert (
        trace
        not in api.get("/livez", headers={"traceparent": f"00-{trace}-0000000000000000-01"}).headers["traceparent"]
    )


def test_valid_request_id_is_kept(api: FlaskClient) -> None:
    assert api.get("/livez", headers={"X-Request-Id": "req-1"}).headers["X-Request-Id"] == "req-1"
    assert api.get("/livez", headers={"X-Request-Id": "a b"}).headers["X-Request-Id"] != "a b"


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        ("/batches", {"runs": [{"model": "mirror"}]}, "runs[].key"),
        (f"/jobs/{ANONYMOUS}/tasks", {"entrypoint": "mirror"}, "Set `key` in the body"),
    ],
)
def test_key_without_effect_is_refused(api: FlaskClient, path: str, body: Any, detail: str) -> None:
    answer = api.post(path, json=body, headers={"Idempotency-Key": "k"})
    assert (answer.status_code, problem(answer)) == (400, "bad-key")
    assert detail in answer.json["detail"]
    assert api.get("/runs").json["items"] == []


def test_a_key_is_ignored_by_operations_without_idempotency(api: FlaskClient) -> None:
    made = api.post("/runs", json=BODY, headers={"Idempotency-Key": "k"}).json
    cancelled = api.post(f"/runs/{made['run_id']}/cancel", headers={"Idempotency-Key": "k"})
    assert (cancelled.status_code, cancelled.json["status"]) == (200, "CANCELLED")
    retried = api.post(f"/runs/{made['run_id']}/retry", headers={"Idempotency-Key": "k"})
    assert (retried.status_code, retried.json["status"]) == (200, "PENDING")


def test_unknown_query_parameters_are_refused_by_every_operation(app: Flask) -> None:
    api = app.test_client()
    for noun in NOUNS:
        for route in noun.routes:
            path = re.sub(r"\{\w+\}", ANONYMOUS, route.path)
            answer = api.open(f"{path}?no-such-parameter=1", method=route.method, json={})
            if route.scope is not None and path != "/metrics":
                assert (answer.status_code, problem(answer)) == (422, "bad-input"), (route.method, route.path)
                assert pointers(answer) == ["/no-such-parameter"]
