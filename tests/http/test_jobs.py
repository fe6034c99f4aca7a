"""Jobs over HTTP."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from tests.http.manual_worker import ManualWorker
from tests.http.test_submit import pointers, problem

TWO = [
    {"entrypoint": "mirror", "kwargs": {"n": 1}, "key": "first"},
    {"entrypoint": "mirror", "kwargs": {"n": 2}, "key": "second", "depends_on": ["first"]},
]


def made(api: FlaskClient, **body: Any) -> dict[str, Any]:
    answer = api.post("/jobs", json={"name": "nightly", "tasks": TWO, **body})
    assert answer.status_code == 201, answer.text
    assert answer.headers["Location"] == f"/jobs/{answer.json['job_id']}"
    job: dict[str, Any] = answer.json
    return job


def tasks(api: FlaskClient, job: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get(job["links"]["tasks"]).json["items"]
    return found


def test_a_job_ends_with_its_tasks(api: FlaskClient, manual_worker: ManualWorker) -> None:
    job = made(api, description="every night", timeout=3600)
    assert (job["status"], job["total_tasks"], job["submitted_by"]) == ("PENDING", 2, "anonymous")
    assert job["deadline_at"]
    first, second = tasks(api, job)
    assert first["job_id"] == second["job_id"] == job["job_id"]
    assert api.get(f"/runs/{second['run_id']}/why").json["items"][0]["code"] == "dependencies"
    manual_worker.run(first["run_id"], 1)
    assert api.get(job["links"]["self"]).json["completed_tasks"] == 1
    manual_worker.run(second["run_id"], 2)
    ended = api.get(f"{job['links']['self']}?wait=10")
    assert ended.json["status"] == "SUCCEEDED"
    assert api.get(job["links"]["self"], headers={"If-None-Match": ended.headers["ETag"]}).status_code == 304


def test_tasks_can_be_added_to_a_job_until_it_ends(api: FlaskClient, manual_worker: ManualWorker) -> None:
    job = made(api, tasks=TWO[:1])
    added = api.post(job["links"]["tasks"], json={"entrypoint": "mirror", "key": "more", "depends_on": ["first"]})
    assert added.status_code == 201, added.text
    again = api.post(job["links"]["tasks"], json={"entrypoint": "mirror", "key": "more", "depends_on": ["first"]})
    assert again.json["run_id"] == added.json["run_id"]
    for task in tasks(api, job):
        manual_worker.run(task["run_id"], 1)
    late = api.post(job["links"]["tasks"], json={"entrypoint": "mirror"})
    assert (late.status_code, problem(late)) == (409, "job-ended")


def test_a_job_is_stopped(api: FlaskClient, manual_worker: ManualWorker) -> None:
    job = made(api)
    claim = manual_worker.claim(tasks(api, job)[0]["run_id"])
    answer = api.post(f"{job['links']['self']}/cancel", json={"reason": "wrong day"})
    assert (answer.status_code, answer.json["reason"]) == (202, "wrong day")
    manual_worker.stop(claim)
    assert api.get(job["links"]["self"]).json["status"] == "CANCELLED"
    assert api.post(f"{job['links']['self']}/cancel").status_code == 200


def test_failed_tasks_of_a_job_are_retried(api: FlaskClient, manual_worker: ManualWorker) -> None:
    job = made(api)
    manual_worker.fail(manual_worker.claim(tasks(api, job)[0]["run_id"]))
    assert api.get(job["links"]["self"]).json["status"] == "FAILED"
    refused = api.post(f"{job['links']['self']}/cancel")
    assert (refused.status_code, problem(refused)) == (409, "job-ended")
    answer = api.post(f"{job['links']['self']}/retry")
    assert (answer.status_code, answer.json["reopened"]) == (200, 2)
    for task in tasks(api, job):
        manual_worker.run(task["run_id"], 1)
    assert api.get(job["links"]["self"]).json["status"] == "SUCCEEDED"


def test_jobs_are_listed(api: FlaskClient, manual_worker: ManualWorker) -> None:
    jobs = [made(api, name=name)["job_id"] for name in ("a", "b", "b")][::-1]
    page = api.get("/jobs?limit=2")
    assert [job["job_id"] for job in page.json["items"]] == jobs[:2]
    link = page.headers["Link"]
    assert [job["job_id"] for job in api.get(link[1 : link.index(">")]).json["items"]] == jobs[2:]
    assert [job["name"] for job in api.get("/jobs?name=a").json["items"]] == ["a"]
    assert len(api.get("/jobs?status=PENDING").json["items"]) == 3
    assert api.get("/jobs?status=done").status_code == 422
    first = api.get(f"/jobs/{jobs[0]}/tasks?limit=1")
    rest = api.get(f"/jobs/{jobs[0]}/tasks?limit=1&cursor={first.json['next_cursor']}")
    assert [task["parameters"]["n"] for task in first.json["items"] + rest.json["items"]] == [1, 2]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, ["/name"]),
        ({"name": ""}, ["/name"]),
        ({"name": "x", "tasks": {}}, ["/tasks"]),
        ({"name": "x", "tasks": 3}, ["/tasks"]),
        ({"name": "x", "tasks": [3]}, ["/tasks/0"]),
        ({"name": "x", "tasks": [{"entrypoint": "nope"}]}, ["/tasks/0/entrypoint"]),
        ({"name": "x", "tasks": [{"entrypoint": 1}]}, ["/tasks/0/entrypoint"]),
        ({"name": "x", "tasks": [{"entrypoint": "typed", "kwargs": {}}]}, ["/tasks/0/kwargs/scenario"]),
        ({"name": "x", "tasks": [{"entrypoint": "mirror", "depends_on": ["who"]}]}, ["/tasks/0/depends_on/0"]),
        ({"name": "x", "tasks": [{"entrypoint": "mirror", "run_after": "soon"}]}, ["/tasks/0/run_after"]),
        ({"name": "x", "timeout": -1}, ["/timeout"]),
        ({"name": "x", "timeout": 5e-324}, ["/timeout"]),
        ({"name": "x", "color": "red"}, ["/color"]),
    ],
)
def test_bad_jobs_are_refused_by_pointer(api: FlaskClient, body: Any, expected: list[str]) -> None:
    answer = api.post("/jobs", json=body)
    assert (answer.status_code, pointers(answer)) == (422, expected)
    assert api.get("/jobs").json["items"] == []


@pytest.mark.parametrize("path", ["/jobs/nope", "/jobs/01994c3e-7d1c-7c62-bd1b-0e2d1c5f6a7b"])
def test_unknown_job_is_a_404(api: FlaskClient, path: str) -> None:
    asked = [api.get(path), api.get(f"{path}/tasks"), api.post(f"{path}/cancel"), api.post(f"{path}/retry")]
    asked.append(api.post(f"{path}/tasks", json={"entrypoint": "mirror"}))
    for answer in asked:
        assert (answer.status_code, problem(answer)) == (404, "job-not-found")


def test_run_waits_for_its_dependencies(api: FlaskClient, manual_worker: ManualWorker) -> None:
    first = api.post("/runs", json={"model": "mirror", "parameters": {"n": 1}}).json["run_id"]
    second = api.post("/runs", json={"model": "mirror", "parameters": {"n": 2}, "depends_on": [first]}).json["run_id"]
    assert api.get(f"/runs/{second}/why").json["items"][0]["code"] == "dependencies"
    manual_worker.run(first, 1)
    manual_worker.run(second, 2)
    assert api.get(f"/runs/{second}").json["status"] == "SUCCEEDED"


def test_repeated_requests_with_a_key_create_one_job(api: FlaskClient, manual_worker: ManualWorker) -> None:
    body = {"name": "nightly", "tasks": TWO}
    first, again = (api.post("/jobs", json=body, headers={"Idempotency-Key": key}) for key in ("night-1", '"night-1"'))
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json == first.json
    assert again.headers["Location"] == first.headers["Location"]
    assert again.headers["Idempotent-Replayed"] == "true"
    other = api.post("/jobs", json=body | {"name": "other"}, headers={"Idempotency-Key": "night-1"})
    assert (other.status_code, problem(other)) == (409, "key-reused")
    run = api.post("/runs", json={"model": "mirror"}, headers={"Idempotency-Key": "night-1"})
    assert (run.status_code, problem(run)) == (409, "key-reused")
    for answer in (other, run):
        assert answer.json["job_id"] == first.json["job_id"]
        assert "run_id" not in answer.json
    assert api.post("/jobs", json=body, headers={"Idempotency-Key": "night-2"}).status_code == 201
    assert len(api.get("/jobs").json["items"]) == 2
    manual_worker.run(tasks(api, first.json)[0]["run_id"], 1)
    assert api.post("/jobs", json=body, headers={"Idempotency-Key": "night-1"}).json["completed_tasks"] == 1


def test_key_of_a_run_is_not_accepted_for_a_job(api: FlaskClient) -> None:
    run = api.post("/runs", json={"model": "mirror"}, headers={"Idempotency-Key": "k"})
    answer = api.post("/jobs", json={"name": "nightly", "tasks": TWO}, headers={"Idempotency-Key": "k"})
    assert (answer.status_code, problem(answer)) == (409, "key-reused")
    assert answer.json["run_id"] == run.json["run_id"]
    assert "job_id" not in answer.json
    assert api.get("/jobs").json["items"] == []


def test_concurrent_requests_with_the_same_key_create_one_job(app: Flask) -> None:
    def ask(number: int) -> tuple[int, str]:
        body = {"name": "nightly", "tasks": TWO}
        answer = app.test_client().post("/jobs", json=body, headers={"Idempotency-Key": "k"})
        return answer.status_code, answer.json["job_id"]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(16)))
    assert len({job_id for _, job_id in answers}) == 1
    assert sorted(status for status, _ in answers) == [200] * 15 + [201]


def test_key_of_another_task_is_a_conflict_that_reveals_no_values(api: FlaskClient) -> None:
    job = api.post("/jobs", json={"name": "nightly", "tasks": TWO}).json
    secret = {"entrypoint": "mirror", "key": "more", "kwargs": {"token": "secret"}}
    assert api.post(job["links"]["tasks"], json=secret).status_code == 201
    for other in (secret | {"kwargs": {"token": "guess"}}, TWO[0] | {"kwargs": {"n": 3}}):
        answer = api.post(job["links"]["tasks"], json=other)
        assert (answer.status_code, problem(answer)) == (409, "task-differs")
        assert "secret" not in answer.text
    assert pointers(answer) == ["/kwargs/n"]
    model = api.post(job["links"]["tasks"], json=secret | {"entrypoint": "typed", "kwargs": {"scenario": "x"}})
    assert (model.status_code, pointers(model)) == (409, ["/entrypoint"])
    later = api.post(job["links"]["tasks"], json=secret | {"depends_on": ["first"]})
    assert (later.status_code, pointers(later)) == (409, ["/depends_on"])
