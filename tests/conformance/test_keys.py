"""Idempotency keys: one key, one run, as long as the run exists."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from holdfast import ops
from holdfast.domain.errors import KeyReused, RunNotFound
from holdfast.domain.ids import new_id, series
from holdfast.domain.jobs import NewJob
from holdfast.domain.states import Status
from holdfast.sql import keys
from tests.timeline import Timeline, new_run


@pytest.mark.every_driver
def test_same_request_returns_the_same_run(timeline: Timeline) -> None:
    first = timeline.submitted({"n": 1}, key="report-42")
    again = timeline.submitted({"n": 1}, key="report-42", queue="other", priority=5)
    assert (first.created, again.created) == (True, False)
    assert again.run.id == first.run.id


def test_key_returns_its_run_in_any_status(timeline: Timeline) -> None:
    run = timeline.submit(key="k")
    worker = timeline.worker("a")
    worker.succeeds(worker.claims(run))
    again = timeline.submitted(key="k")
    assert (again.run.id, again.run.status, again.created) == (run, "SUCCEEDED", False)


@pytest.mark.every_driver
def test_key_with_another_payload_is_rejected_with_the_differing_fields(timeline: Timeline) -> None:
    run = timeline.submit({"same": 1, "changed": 1, "gone": 1}, key="k")
    with pytest.raises(KeyReused) as refused:
        timeline.submit({"same": 1, "changed": 2, "new": 1}, key="k")
    assert refused.value.run_id == run
    assert sorted(refused.value.fields) == ["/parameters/changed", "/parameters/gone", "/parameters/new"]


def test_key_with_another_task_is_rejected(timeline: Timeline) -> None:
    timeline.submit(key="k")
    with pytest.raises(KeyReused) as refused:
        timeline.submit(key="k", task="other")
    assert refused.value.fields == ("/model",)


def test_rejected_request_creates_nothing(timeline: Timeline, connection: psycopg.Connection) -> None:
    timeline.submit({"n": 1}, key="k")
    with pytest.raises(KeyReused):
        timeline.submit({"n": 2}, key="k")
    assert connection.execute("select count(*) from holdfast.runs").fetchone() == (1,)


def test_new_key_creates_a_run_despite_an_active_run_with_the_same_payload(timeline: Timeline) -> None:
    """A new key creates a new run, even if an active run has the same payload."""
    first = timeline.submitted(key="one")
    second = timeline.submitted(key="two", dedupe="active")
    assert second.created
    assert first.run.id != second.run.id


def test_scopes_do_not_share_keys(timeline: Timeline) -> None:
    first = timeline.submitted({"n": 1}, key="k", scope="ada")
    second = timeline.submitted({"n": 2}, key="k", scope="bob")
    assert second.created
    assert first.run.id != second.run.id


def test_key_conflict_reveals_nothing_about_another_scope(timeline: Timeline) -> None:
    """A key conflict reveals nothing about a request of another scope with the same key."""
    ada = timeline.submitted({"n": 1}, key="k", scope="ada")
    bob = timeline.submitted({"n": 2}, key="k", scope="bob")
    assert timeline.submitted({"n": 1}, key="k", scope="ada").run.id == ada.run.id
    assert timeline.submitted({"n": 2}, key="k", scope="bob").run.id == bob.run.id


@pytest.mark.every_driver
def test_key_applies_to_a_scheduled_run(timeline: Timeline, connection: psycopg.Connection) -> None:
    first = timeline.submitted(key="k", run_after=timedelta(minutes=5))
    again = timeline.submitted(key="k", run_after=timedelta(minutes=5))
    assert (again.run.id, again.created) == (first.run.id, False)
    assert connection.execute("select count(*) from holdfast.runs").fetchone() == (1,)


@pytest.mark.every_driver
def test_expired_key_is_kept_while_its_run_exists(timeline: Timeline) -> None:
    run = timeline.submit({"n": 1}, key="k", key_ttl=timedelta(hours=1))
    timeline.later(hours=2)
    assert timeline.submitted({"n": 1}, key="k").run.id == run
    timeline.cancel(run)
    timeline.later(days=80)
    timeline.perform(lambda: ops.prune(timedelta(days=90)))
    assert timeline.submitted({"n": 1}, key="k").run.id == run
    with pytest.raises(KeyReused):
        timeline.submit({"n": 2}, key="k")


@pytest.mark.parametrize("payload", [1, 2])
def test_expired_key_is_free_once_its_run_is_gone(
    timeline: Timeline, connection: psycopg.Connection, payload: int
) -> None:
    timeline.at("10:00")
    first = timeline.submitted({"n": 1}, key="k", key_ttl=timedelta(hours=1))
    connection.execute("truncate holdfast.runs, holdfast.ready cascade")
    timeline.at("10:59")
    with pytest.raises(RunNotFound):
        timeline.submit({"n": 1}, key="k")
    timeline.at("11:01")
    second = timeline.submitted({"n": payload}, key="k")
    assert second.created
    assert second.run.id != first.run.id
    assert timeline.submitted({"n": payload}, key="k").run.id == second.run.id


def test_request_repeated_after_its_key_expired_returns_the_same_run(timeline: Timeline) -> None:
    new = new_run(key="k", key_ttl=timedelta(hours=1))
    timeline.perform(lambda: ops.submit(new))
    timeline.later(hours=2)
    again = timeline.perform(lambda: ops.submit(new))
    assert (again.run.id, again.created) == (new.id, False)


def test_only_expired_keys_of_pruned_runs_are_removed(timeline: Timeline, connection: psycopg.Connection) -> None:
    """Existing runs in a pruned range keep their keys."""
    short = timeline.submit({"n": 1}, key="short", key_ttl=timedelta(hours=1))
    long = timeline.submit({"n": 2}, key="long", key_ttl=timedelta(hours=3))
    kept = timeline.submit({"n": 3}, key="kept", key_ttl=timedelta(hours=1))
    other = timeline.submit({"n": 4}, key="other", key_ttl=timedelta(hours=1))
    timeline.later(hours=2)
    assert timeline.ask(keys.expire(10)) == 0
    connection.execute("insert into holdfast.pruned_ranges (low, high) values (%s, %s)", [short, kept])
    connection.execute("set session_replication_role = replica")
    connection.execute("delete from holdfast.runs where id = any(%s::uuid[])", [[short, long, other]])
    connection.execute("set session_replication_role = default")
    assert timeline.ask(keys.expire(10)) == 1
    left = connection.execute("select key from holdfast.idempotency_keys order by key").fetchall()
    assert left == [("kept",), ("long",), ("other",)]


@pytest.mark.every_driver
def test_expired_key_of_a_job_creates_no_run(timeline: Timeline) -> None:
    job = NewJob(new_id(), "keyed")
    key = keys.NewKey("", "k", job.id, "(job)", "00" * 32, timedelta(hours=1))
    timeline.perform(lambda: ops.create_keyed_job(job, [], key))
    timeline.later(hours=2)
    with pytest.raises(KeyReused):
        timeline.submit(key="k")


@pytest.mark.every_driver
def test_key_of_a_job_with_runs_is_kept(timeline: Timeline, connection: psycopg.Connection) -> None:
    job = NewJob(new_id(), "keyed")
    task = new_run(id=series(job.id, "tasks", 1, first=True)[0], job_id=job.id)
    key = keys.NewKey("", "k", job.id, "(job)", "00" * 32, timedelta(hours=1))
    timeline.perform(lambda: ops.create_keyed_job(job, [task], key))
    timeline.perform(lambda: ops.stop_job(job.id, Status.CANCELLED, "enough"))
    timeline.later(hours=2)
    connection.execute("insert into holdfast.pruned_ranges (low, high) values (%s, %s)", [job.id, job.id])
    assert timeline.ask(keys.expire(10)) == 0
