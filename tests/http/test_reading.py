"""Reading runs: versions, waits, pages."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from holdfast.http.service import EXTENSION
from tests.http.conftest import Submit
from tests.http.manual_worker import ManualWorker
from tests.http.test_submit import pointers, problem

UNKNOWN = "01994c3e-7d1c-7c62-bd1b-0e2d1c5f6a7b"


def test_known_version_is_not_sent_again(api: FlaskClient, submit: Submit, manual_worker: ManualWorker) -> None:
    path = f"/runs/{submit()}"
    tags = []

    def look() -> None:
        tag = api.get(path).headers["ETag"]
        for sent in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            again = api.get(path, headers={"If-None-Match": sent})
            assert again.status_code == 304
            assert again.data == b""
            assert again.headers["ETag"] == tag
            assert "Content-Type" not in again.headers
        assert api.get(path, headers={"If-None-Match": '"other"'}).status_code == 200
        tags.append(tag)

    look()
    claim = manual_worker.claim(path.rpartition("/")[2])
    look()
    manual_worker.progress(claim, 1, 2)
    look()
    manual_worker.fail(claim, outcome=None)
    look()
    claim = manual_worker.claim(claim.run_id)
    look()
    api.post(f"{path}/cancel")
    look()
    manual_worker.stop(claim)
    look()
    assert len(set(tags)) == len(tags)


@pytest.mark.parametrize("path", ["/runs/nope", f"/runs/{UNKNOWN}", f"/runs/{UNKNOWN}/result", "/runs/x/events"])
def test_unknown_run_is_a_404(api: FlaskClient, path: str) -> None:
    answer = api.get(path)
    assert answer.status_code == 404
    assert problem(answer) == "run-not-found"


def waiting(app: Flask, path: str, **options: Any) -> tuple[ThreadPoolExecutor, Any]:
    """Send a request in a thread, and return once that thread waits at the hub."""
    pool = ThreadPoolExecutor(1)
    asked = pool.submit(lambda: app.test_client().get(path, **options))
    hub = app.extensions[EXTENSION].hub
    ticker = threading.Event()
    for _ in range(1000):
        if hub._watches or asked.done():
            break
        ticker.wait(0.01)
    return pool, asked


def test_a_wait_ends_with_the_run(app: Flask, submit: Submit, manual_worker: ManualWorker) -> None:
    run_id = submit()
    pool, asked = waiting(app, f"/runs/{run_id}?wait=30")
    assert not asked.done()
    manual_worker.run(run_id, {"x": 1})
    assert asked.result(10).json["status"] == "SUCCEEDED"
    pool.shutdown()


def test_a_wait_for_a_version_ends_at_any_change(
    app: Flask, api: FlaskClient, submit: Submit, manual_worker: ManualWorker
) -> None:
    run_id = submit()
    tag = api.get(f"/runs/{run_id}").headers["ETag"]
    pool, asked = waiting(app, f"/runs/{run_id}?wait=30", headers={"If-None-Match": tag})
    assert not asked.done()
    claim = manual_worker.claim(run_id)
    running = asked.result(10)
    assert running.json["status"] == "RUNNING"
    assert running.json["lease_owner"] == manual_worker.id
    tag = running.headers["ETag"]
    asked = pool.submit(lambda: app.test_client().get(f"/runs/{run_id}?wait=30", headers={"If-None-Match": tag}))
    manual_worker.progress(claim, 1, 3)
    assert asked.result(10).json["progress"] == {"done": 1, "total": 3}
    pool.shutdown()


def test_wait_that_times_out_returns_the_current_run(api: FlaskClient, submit: Submit) -> None:
    path = f"/runs/{submit()}"
    over = api.get(f"{path}?wait=0.05")
    assert (over.status_code, over.json["status"]) == (200, "PENDING")
    assert over.headers["Retry-After"] == "1"
    unchanged = api.get(f"{path}?wait=0.05", headers={"If-None-Match": over.headers["ETag"]})
    assert unchanged.status_code == 304
    preferred = api.get(path, headers={"Prefer": "respond-async, wait=0.05"})
    assert preferred.headers["Preference-Applied"] == "wait=0.05"


@pytest.mark.parametrize("wait", ["0.030000000000000002", "0.0300000000000000000000000000000000000001s"])
def test_wait_may_have_many_decimal_places(api: FlaskClient, submit: Submit, wait: str) -> None:
    assert api.get(f"/runs/{submit()}?wait={wait}").status_code == 200


def test_times_are_written_the_same_everywhere(api: FlaskClient, submit: Submit, manual_worker: ManualWorker) -> None:
    later = submit(run_after="2099-01-31T08:00:00+00:00")
    assert api.get(f"/runs/{later}").json["run_after"] == "2099-01-31T08:00:00Z"
    manual_worker.claim(submit(parameters={"n": 1}))
    running = api.get("/runs?status=RUNNING").json["items"][0]["run_id"]
    api.post("/queues/paused/pause")
    held = submit(queue="paused", parameters={"n": 2})
    texts = [api.get(f"/runs/{run_id}/why").text for run_id in (later, running, held)]
    assert [len(re.findall(r"\d{4}-\d\d-\d\dT[\d:.]+Z", text)) for text in texts] == [
        2,
        2,
        2,
    ]  # in the sentence and in its field
    assert "+00:00" not in "".join(texts)


@pytest.mark.parametrize("wait", ["-1", "61", "soon", "nan", "inf", "", "1e1"])
def test_invalid_wait_is_refused(api: FlaskClient, submit: Submit, wait: str) -> None:
    answer = api.get(f"/runs/{submit()}?wait={wait}")
    assert answer.status_code == 422
    assert pointers(answer) == ["/wait"]


def test_wait_above_the_limit_responds_at_once(settings: Any, make_app: Callable[..., Flask], submit: Submit) -> None:
    from dataclasses import replace

    full = make_app(replace(settings, max_streams=1))
    full.extensions[EXTENSION].streams.enter()
    assert full.test_client().get(f"/runs/{submit()}?wait=30").json["status"] == "PENDING"


def test_pages_follow_each_other(api: FlaskClient, submit: Submit) -> None:
    ids = [submit(parameters={"n": n}) for n in range(5)][::-1]
    seen: list[str] = []
    path = "/runs?limit=2&model=mirror"
    for expected in ([0, 1], [2, 3], [4]):
        page = api.get(path)
        assert [run["run_id"] for run in page.json["items"]] == [ids[n] for n in expected]
        seen += [run["run_id"] for run in page.json["items"]]
        link = page.headers.get("Link")
        if page.json["next_cursor"] is None:
            assert link is None
            break
        path = link[1 : link.index(">")]
        assert link.endswith('; rel="next"')
        assert "model=mirror" in path
    assert seen == ids


def test_runs_are_filtered_by_status_model_queue_and_tag(
    api: FlaskClient, submit: Submit, manual_worker: ManualWorker
) -> None:
    failed, done = submit(tags=["a", "b"]), submit(queue="other")
    running, waiting = submit("typed", {"scenario": "s"}), submit(tags=["b"])
    manual_worker.fail(manual_worker.claim(failed))
    manual_worker.run(done, 1)
    manual_worker.claim(running)

    def found(query: str) -> set[str]:
        return {run["run_id"] for run in api.get(f"/runs?{query}").json["items"]}

    assert found("status=FAILED") == {failed}
    assert found("status=SUCCEEDED") == {done}
    assert found("status=RUNNING") == {running}
    assert found("status=PENDING") == {waiting}
    assert found("status=CANCELLED") == set()
    assert found("tag=b") == {failed, waiting}
    assert found("tag=b&status=FAILED") == {failed}
    assert found("queue=other") == {done}
    assert found("model=typed") == {running}
    assert found("model=nope") == set()


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("status=DONE", "/status"),
        ("status=pending", "/status"),
        ("limit=0", "/limit"),
        ("limit=201", "/limit"),
        ("limit=1e2", "/limit"),
        ("limit=%C2%B2", "/limit"),
        ("cursor=abc", "/cursor"),
        ("stauts=FAILED", "/stauts"),
        ("status=FAILED&status=FAILED", "/status"),
        ("tag=%00", "/tag"),
    ],
)
def test_invalid_filter_is_refused(api: FlaskClient, query: str, pointer: str) -> None:
    answer = api.get(f"/runs?{query}")
    assert answer.status_code == 422
    assert pointers(answer) == [pointer]
