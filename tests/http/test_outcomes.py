"""How runs end: results, cancels, retries, and what is known about them."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from holdfast.results.files import CHUNK, DamagedResult, FileStore
from holdfast.runtime.settings import Settings
from tests.http.conftest import Submit
from tests.http.manual_worker import ManualWorker
from tests.http.test_submit import problem


def digest(data: bytes) -> str:
    return f"sha-256=:{b64encode(sha256(data).digest()).decode()}:"


def test_pending_run_is_postponed(api: FlaskClient, submit: Submit) -> None:
    run_id = submit()
    answer = api.post(f"/runs/{run_id}/postpone", json={"until": "2099-01-01T00:00:00Z"})
    assert (answer.status_code, answer.json["status"], answer.json["reason"]) == (200, "PENDING", "postponed")
    (why,) = [one for one in api.get(f"/runs/{run_id}/why").json["items"] if one["code"] == "postponed"]
    assert why["detail"] == "postponed until 2099-01-01T00:00:00Z"
    assert api.get(f"/runs/{run_id}/events").json["items"][-1]["type"] == "POSTPONED"


@pytest.mark.parametrize(
    "body", [{}, {"until": "soon"}, {"until": "2099-01-01"}, {"until": None}, {"until": True}, {"at": 1}]
)
def test_postponing_without_a_valid_time_is_refused(api: FlaskClient, submit: Submit, body: dict[str, Any]) -> None:
    answer = api.post(f"/runs/{submit()}/postpone", json=body)
    assert answer.status_code == 422
    assert answer.json["errors"][0]["pointer"] in ("/until", "/at")


def test_running_run_cannot_be_postponed(api: FlaskClient, submit: Submit, manual_worker: ManualWorker) -> None:
    run_id = submit()
    manual_worker.claim(run_id)
    answer = api.post(f"/runs/{run_id}/postpone", json={"until": "2099-01-01T00:00:00Z"})
    assert (answer.status_code, answer.json["type"].rpartition("/")[2]) == (409, "run-ended")


def test_result_is_sent_as_the_bare_value(api: FlaskClient, submit: Submit, manual_worker: ManualWorker) -> None:
    for value in ({"objective": 0.83}, [1, 2], "text", None, 12345678901234567890):
        run_id = submit(parameters={"v": value})
        manual_worker.run(run_id, value)
        answer = api.get(f"/runs/{run_id}/result")
        assert answer.status_code == 200
        assert answer.json == value
        assert answer.headers["Repr-Digest"] == digest(answer.data)
        tag = answer.headers["ETag"]
        for sent in (tag, f"W/{tag}"):  # a proxy that compresses the response makes the tag weak
            assert api.get(f"/runs/{run_id}/result", headers={"If-None-Match": sent}).status_code == 304


def test_large_result_is_sent_in_chunks(
    api: FlaskClient, submit: Submit, manual_worker: ManualWorker, settings: Settings
) -> None:
    run_id = submit()
    claim = manual_worker.claim(run_id)
    text = b'"' + b"x" * (3 * CHUNK + 17) + b'"'
    store = FileStore(settings.artifacts)
    manual_worker.succeed(claim, stored=store.put(run_id, claim.number, text))
    answer = api.get(f"/runs/{run_id}/result", buffered=False)
    pieces = list(answer.iter_encoded())
    assert len(pieces) > 2
    assert b"".join(pieces) == text
    assert answer.headers["Content-Length"] == str(len(text))
    assert answer.headers["Repr-Digest"] == digest(text)
    assert api.get(f"/runs/{run_id}").json["result_ref"] == f"{run_id}/{claim.number}.json"


def test_damaged_result_is_never_sent_completely(
    api: FlaskClient, submit: Submit, manual_worker: ManualWorker, settings: Settings
) -> None:
    run_id = submit()
    claim = manual_worker.claim(run_id)
    stored = FileStore(settings.artifacts).put(run_id, claim.number, b'"' + b"x" * CHUNK + b'"')
    manual_worker.succeed(claim, stored=stored)
    path = Path(settings.artifacts) / stored.ref
    path.write_bytes(b'"' + b"y" * CHUNK + b'"')
    answer = api.get(f"/runs/{run_id}/result", buffered=False)
    taken: list[bytes] = []
    with pytest.raises(DamagedResult, match="not what was stored"):
        taken.extend(answer.iter_encoded())
    assert sum(map(len, taken)) < stored.size
    path.write_bytes(b'"short"')
    assert problem(api.get(f"/runs/{run_id}/result")) == "result-damaged"
    path.unlink()
    gone = api.get(f"/runs/{run_id}/result")
    assert (gone.status_code, problem(gone)) == (500, "result-damaged")
    assert str(settings.artifacts) not in gone.text


def test_pending_failed_and_cancelled_runs_have_no_result(
    api: FlaskClient, submit: Submit, manual_worker: ManualWorker
) -> None:
    run_id = submit()
    early = api.get(f"/runs/{run_id}/result")
    assert (early.status_code, problem(early)) == (409, "run-not-finished")
    assert int(early.headers["Retry-After"]) >= 1
    manual_worker.fail(manual_worker.claim(run_id), "no such region")
    failed = api.get(f"/runs/{run_id}/result")
    assert (failed.status_code, problem(failed)) == (409, "run-failed")
    assert failed.json["error"] == {"class": "ValueError", "message": "no such region"}
    other = submit()
    api.post(f"/runs/{other}/cancel")
    cancelled = api.get(f"/runs/{other}/result")
    assert (cancelled.status_code, problem(cancelled)) == (409, "run-cancelled")


def test_a_pending_run_is_cancelled_at_once(api: FlaskClient, submit: Submit) -> None:
    run_id = submit()
    answer = api.post(f"/runs/{run_id}/cancel", json={"reason": "not needed"})
    assert answer.status_code == 200
    assert (answer.json["status"], answer.json["reason"]) == ("CANCELLED", "not needed")
    assert api.post(f"/runs/{run_id}/cancel").status_code == 200


def test_running_run_is_asked_to_stop_and_can_only_end_cancelled(
    api: FlaskClient, submit: Submit, manual_worker: ManualWorker
) -> None:
    run_id = submit()
    claim = manual_worker.claim(run_id)
    answer = api.post(f"/runs/{run_id}/cancel")
    assert (answer.status_code, answer.json["status"]) == (202, "RUNNING")
    assert answer.json["cancel_requested_at"]
    manual_worker.succeed(claim, {"too": "late"})
    assert api.get(f"/runs/{run_id}").json["status"] == "CANCELLED"


def test_a_run_that_ended_cannot_be_cancelled(api: FlaskClient, submit: Submit, manual_worker: ManualWorker) -> None:
    run_id = submit()
    manual_worker.run(run_id, 1)
    answer = api.post(f"/runs/{run_id}/cancel")
    assert (answer.status_code, problem(answer)) == (409, "run-ended")


def test_failed_run_can_be_retried_but_pending_and_succeeded_runs_cannot(
    api: FlaskClient, submit: Submit, manual_worker: ManualWorker
) -> None:
    run_id = submit()
    early = api.post(f"/runs/{run_id}/retry")
    assert (early.status_code, problem(early)) == (409, "run-ended")
    manual_worker.fail(manual_worker.claim(run_id))
    answer = api.post(f"/runs/{run_id}/retry")
    assert (answer.status_code, answer.json["status"]) == (200, "PENDING")
    manual_worker.run(run_id, "at last")
    assert api.get(f"/runs/{run_id}/result").json == "at last"
    assert api.post(f"/runs/{run_id}/retry").status_code == 409
    types = [event["type"] for event in api.get(f"/runs/{run_id}/events").json["items"]]
    assert types == ["SUBMITTED", "CLAIMED", "FAILED", "REOPENED", "CLAIMED", "SUCCEEDED"]


def test_events_attempts_and_logs_of_a_run_are_listed(
    api: FlaskClient, submit: Submit, manual_worker: ManualWorker
) -> None:
    run_id = submit()
    assert api.get(f"/runs/{run_id}/why").json["items"][0]["code"]
    claim = manual_worker.claim(run_id)
    manual_worker.log(claim, "one", "two")
    manual_worker.fail(claim, outcome=None)
    claim = manual_worker.claim(run_id)
    manual_worker.log(claim, "three")
    manual_worker.succeed(claim, {"ok": True})
    events = api.get(f"/runs/{run_id}/events").json["items"]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [(event["from"], event["to"]) for event in events if event["type"] == "CLAIMED"] == [
        ("PENDING", "RUNNING")
    ] * 2
    assert api.get(f"/runs/{run_id}/events?after=3").json["items"] == events[3:]
    attempts = api.get(f"/runs/{run_id}/attempts").json["items"]
    assert [(attempt["number"], attempt["status"]) for attempt in attempts] == [(1, "FAILED"), (2, "SUCCEEDED")]
    assert attempts[0]["error"]["class"] == "ValueError"
    assert attempts[0]["error"]["traceback"]
    logs = api.get(f"/runs/{run_id}/logs").json
    assert [(line["attempt"], line["message"]) for line in logs["items"]] == [(1, "one"), (1, "two"), (2, "three")]
    assert logs["next_after"] is None
    first = api.get(f"/runs/{run_id}/logs?limit=2").json
    rest = api.get(f"/runs/{run_id}/logs?limit=2&after={first['next_after']}").json
    assert [line["message"] for line in first["items"] + rest["items"]] == ["one", "two", "three"]


def test_provenance_names_payload_submitter_worker_and_digest(
    api: FlaskClient, submit: Submit, manual_worker: ManualWorker
) -> None:
    run_id = submit(parameters={"a": 1})
    manual_worker.run(run_id, {"objective": 0.5})
    found: dict[str, Any] = api.get(f"/runs/{run_id}/provenance").json
    run = api.get(f"/runs/{run_id}").json
    assert found["payload_hash"] == run["payload_hash"]
    assert found["submitted_by"] == "anonymous"
    assert found["result"]["sha256"] == sha256(api.get(f"/runs/{run_id}/result").data).hexdigest()
    assert found["attempts"][0]["hostname"] == "test-host"
    assert found["wait_seconds"] >= 0
    assert found["run_seconds"] >= 0
