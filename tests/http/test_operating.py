"""Queues, workers, tasks, the summary, health and metrics."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from flask import Flask
from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families

from holdfast.http import metrics as metrics_module
from holdfast.runtime.settings import Settings
from tests.http.conftest import Submit
from tests.http.manual_worker import ManualWorker
from tests.http.test_submit import problem

SOURCES = (
    "runs_created_total",
    "runs_succeeded_total",
    "runs_failed_total",
    "run_duration_seconds",
    "queue_lag_seconds",
    "stuck_runs_detected_total",
    "jobs_created_total",
    "jobs_completed_total",
    "jobs_failed_total",
    "job_duration_seconds",
    "tasks_created_total",
    "tasks_completed_total",
    "tasks_failed_total",
    "task_duration_seconds",
    "task_queue_depth",
    "workers_active",
    "worker_task_execution_time",
    "worker_heartbeat_age",
)


def test_queues_are_paused_and_resumed(api: FlaskClient, submit: Submit, manual_worker: ManualWorker) -> None:
    run_id = submit(queue="slow")
    paused = api.post("/queues/slow/pause", json={"reason": "maintenance"}).json
    assert (paused["paused"], paused["pause_reason"], paused["ready"]) == (True, "maintenance", 1)
    assert api.get("/queues/slow").json == paused
    assert paused in api.get("/queues").json["items"]
    with pytest.raises(AssertionError):
        manual_worker.claim(run_id)
    assert api.get(f"/runs/{run_id}/why").json["items"][0]["code"] == "paused"
    assert api.post("/queues/slow/resume").json["paused"] is False
    manual_worker.run(run_id, 1)
    assert api.get("/queues/nobody-knows").json["ready"] == 0


def test_workers_are_listed_and_drained(api: FlaskClient, submit: Submit, manual_worker: ManualWorker) -> None:
    (worker,) = api.get("/workers").json["items"]
    assert (worker["id"], worker["status"], worker["hostname"]) == (manual_worker.id, "idle", "test-host")
    manual_worker.claim(submit())
    assert api.get("/workers?status=active").json["items"][0]["running"] == 1
    answer = api.post(f"/workers/{manual_worker.id}/drain")
    assert (answer.status_code, answer.json["status"]) == (202, "draining")
    assert api.get("/workers?status=draining").json["items"][0]["id"] == manual_worker.id
    assert api.get("/workers?status=lazy").status_code == 422
    for unknown in ("x", "01994c3e-7d1c-7c62-bd1b-0e2d1c5f6a7b"):
        missing = api.post(f"/workers/{unknown}/drain")
        assert (missing.status_code, problem(missing)) == (404, "not-found")


def test_tasks_are_listed_with_the_schema_of_their_parameters(api: FlaskClient) -> None:
    names = [task["name"] for task in api.get("/tasks").json["items"]]
    assert {"mock", "baseline_forecast_v1", "typed"} <= set(names)
    task = api.get("/tasks/typed").json
    assert task["parameters"]["required"] == ["scenario"]
    assert task["parameters"]["properties"]["months"]["type"] == "integer"
    assert task["ignore_in_hash"] == ["requested_at", "client.name"]
    assert api.get("/tasks/nope").status_code == 404


def test_the_summary_counts_by_model_and_status(
    api: FlaskClient, submit: Submit, manual_worker: ManualWorker, database_url: str
) -> None:
    ids = [submit(parameters={"n": n}) for n in range(6)]
    submit("typed", {"scenario": "x"})
    manual_worker.run(ids[0], 1)
    manual_worker.fail(manual_worker.claim(ids[1]))
    api.post(f"/runs/{ids[2]}/cancel")
    manual_worker.claim(ids[3])
    manual_worker.fail(manual_worker.claim(ids[4]))
    api.post(f"/runs/{ids[4]}/retry")

    def agrees() -> None:
        summary = api.get("/summary").json
        with psycopg.connect(database_url) as connection:
            counted = connection.execute(
                "select task, status, count(*) from holdfast.run_status group by 1, 2"
            ).fetchall()
        reported = {
            (one["model"], status): one[status]
            for one in summary["items"]
            for status in ("PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED")
            if one[status]
        }
        assert reported == {(task, status): count for task, status, count in counted}
        assert summary["total"]["created"] == 7

    agrees()
    api.post(f"/runs/{ids[2]}/retry")
    agrees()
    api.post(f"/runs/{ids[4]}/cancel")
    agrees()


def test_health_reports_each_check(api: FlaskClient) -> None:
    assert api.get("/livez").json == {"status": "ok", "checks": {}}
    assert api.get("/readyz").json == {"status": "ok", "checks": {"postgres": "ok"}}
    assert api.get("/healthz").json == {"status": "ok", "checks": {"postgres": "ok"}}


@pytest.mark.usefixtures("brief_waits")
def test_health_reports_what_is_down(
    settings: Settings, make_app: Callable[[Settings], Flask], database_url: str
) -> None:
    away = make_app(replace(settings, database_url="postgresql://nobody@127.0.0.1:1/nowhere")).test_client()
    for path in ("/readyz", "/healthz"):
        answer = away.get(path)
        assert (answer.status_code, answer.json["checks"]["postgres"]) == (503, "down")
        assert answer.headers["Retry-After"]
    assert away.get("/livez").status_code == 200
    runs = away.get("/runs")
    assert (runs.status_code, problem(runs)) == (503, "database-unreachable")
    assert "nowhere" not in runs.text
    lonely = make_app(replace(settings, redis_url="redis://127.0.0.1:1/0")).test_client()
    answer = lonely.get("/healthz")
    assert (answer.status_code, answer.json["checks"]) == (503, {"postgres": "ok", "redis": "down"})
    assert lonely.get("/readyz").status_code == 200
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("update holdfast.migration set version_num = '0001'")
    assert make_app(settings).test_client().get("/readyz").status_code == 503


def metrics(api: FlaskClient) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(api.get("/metrics").text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_metrics_have_every_name_of_the_sources(api: FlaskClient) -> None:
    text = api.get("/metrics").text
    for name in SOURCES:
        assert re.search(rf"^# TYPE {name} ", text, re.MULTILINE), name


def test_metrics_count_exactly(
    api: FlaskClient, submit: Submit, manual_worker: ManualWorker, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    monkeypatch.setattr(metrics_module, "KEEP_SECONDS", 0.0)
    for n in range(5):
        run_id = submit(parameters={"n": n})
        if n < 2:
            manual_worker.run(run_id, 1)
        elif n == 2:
            manual_worker.fail(manual_worker.claim(run_id))
    mirror = (("model", "mirror"),)

    def check() -> dict[str, Any]:
        found = metrics(api)
        assert found["runs_created_total"][mirror] == 5
        assert found["runs_succeeded_total"][mirror] == 2
        assert found["runs_failed_total"][mirror] == 1
        assert found["tasks_created_total"][(("task", "mirror"),)] == 5
        assert found["run_duration_seconds_count"][(("model", "mirror"), ("outcome", "SUCCEEDED"))] == 2
        assert found["holdfast_run_wait_seconds_count"][mirror] == 3
        assert found["holdfast_metrics_db_up"][()] == 1
        return found

    found = check()
    assert found["task_queue_depth"][(("queue", "default"), ("state", "ready"))] == 2
    assert found["workers_active"][()] == 1
    assert found["worker_heartbeat_age"][(("worker", manual_worker.id),)] >= 0
    assert found["queue_lag_seconds"][(("queue", "default"),)] > 0
    assert found["holdfast_runs_without_able_worker"][(("queue", "default"),)] == 0
    assert any(dict(labels)["route"] == "/runs" for labels in found["holdfast_http_request_duration_seconds_count"])
    with psycopg.connect(database_url, autocommit=True) as connection:
        from holdfast.drivers.psycopg import transact
        from holdfast.sql import tallies

        transact(connection, lambda: iter(tallies.fold(1000)))
        connection.execute("truncate holdfast.runs, holdfast.attempts cascade")
    check()


@pytest.mark.usefixtures("brief_waits")
def test_metrics_of_the_process_survive_the_database(settings: Settings, make_app: Callable[[Settings], Flask]) -> None:
    app = make_app(replace(settings, database_url="postgresql://nobody@127.0.0.1:1/nowhere"))
    answer = app.test_client().get("/metrics")
    assert answer.status_code == 200
    assert "metrics_db_up 0.0" in answer.text
    assert "http_requests_in_flight" in answer.text
    assert "runs_created" not in answer.text


def test_counters_start_at_zero(api: FlaskClient) -> None:
    found = metrics(api)
    mirror, outcome = ("model", "mirror"), ("outcome", "SUCCEEDED")
    for name in ("runs_created_total", "runs_failed_total", "stuck_runs_detected_total"):
        assert found[name][(mirror,)] == found[f"holdfast_{name}"][(mirror,)] == 0
    assert found["tasks_failed_total"][(("task", "mirror"),)] == 0
    assert found["job_duration_seconds_count"][(outcome,)] == 0


def test_histograms_start_at_zero_with_the_first_run_of_a_task(api: FlaskClient, submit: Submit) -> None:
    submit()
    found = metrics(api)
    mirror = ("model", "mirror")
    assert found["run_duration_seconds_count"][(mirror, ("outcome", "FAILED"))] == 0
    assert found["holdfast_run_wait_seconds_count"][(mirror,)] == 0
