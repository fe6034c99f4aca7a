"""The HTTP clients: the calls of the other clients, automatic keys, and retries."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

import holdfast
from holdfast import AsyncHttpClient, HttpClient, Submission
from holdfast.domain.errors import (
    BadInput,
    BadParameters,
    KeyReused,
    NotCanonical,
    NotFound,
    RunCancelled,
    RunEnded,
    RunFailed,
    RunNotFinished,
    RunNotFound,
    UnknownTask,
    WaitTimeout,
)
from holdfast.runtime.settings import Settings
from holdfast.verbs.facades import AsyncCalls, Calls
from tests.http.api_tasks import mirror
from tests.http.conftest import Server
from tests.http.manual_worker import ManualWorker

pytestmark = pytest.mark.one_server


@pytest.fixture
def client(server: Server, settings: Settings) -> Iterator[HttpClient]:
    with HttpClient(server.url, settings=settings) as made:
        yield made


def test_both_http_clients_have_all_client_calls() -> None:
    assert issubclass(HttpClient, Calls)
    assert issubclass(AsyncHttpClient, AsyncCalls)
    assert {name for name in dir(HttpClient) if not name.startswith("_")} | {"blocking_client"} == {
        name for name in dir(AsyncHttpClient) if not name.startswith("_")
    }
    assert holdfast.HttpClient is HttpClient


def test_run_is_submitted_waited_for_and_read(client: HttpClient, manual_worker: ManualWorker) -> None:
    run = client.submit("typed", {"scenario": "x"}, tags=["a"], priority=3, key="one")
    assert run.created
    assert (run.status, run.model, run.priority, run.tags) == ("PENDING", "typed", 3, ("a",))
    assert not client.submit("typed", {"scenario": "x"}, key="one").created
    with pytest.raises(RunNotFinished):
        run.result()
    with pytest.raises(WaitTimeout):
        run.wait(timeout=0.05)
    manual_worker.run(run.id, {"objective": 0.83})
    assert run.wait(timeout=10).status == "SUCCEEDED"
    assert run.result() == {"objective": 0.83}
    assert run.refresh().as_dict()["run_id"] == run.id
    assert [event.type for event in run.events()] == ["SUBMITTED", "CLAIMED", "SUCCEEDED"]
    assert [(attempt.number, attempt.worker_id) for attempt in run.attempts()] == [(1, manual_worker.id)]
    assert run.why()[0].code == "ended"
    assert client.get(run.id) == run
    assert [found.id for found in client.list(status="SUCCEEDED")] == [run.id]
    assert client.summary()["total"]["SUCCEEDED"] == 1


def test_wait_ends_with_the_run(client: HttpClient, manual_worker: ManualWorker) -> None:
    run = client.submit("mirror")
    timer = threading.Timer(0.3, lambda: manual_worker.run(run.id, 1))
    timer.start()
    assert run.wait(timeout=20).status == "SUCCEEDED"
    timer.join()


def test_every_submission_creates_a_run_by_default(client: HttpClient) -> None:
    assert len({client.submit("mirror").id for _ in range(3)}) == 3
    assert len({client.submit("mirror", {"n": 1}, dedupe="active").id for _ in range(3)}) == 1
    assert len({client.submit("mirror", {"n": 2}, dedupe=timedelta(hours=1)).id for _ in range(3)}) == 1


def test_options_of_a_submission_are_stored_with_the_run(client: HttpClient) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    assert client.submit("mirror", run_after=at).run_after == at
    soon = client.submit("mirror", run_after=timedelta(minutes=5))
    # The clock of the client does not matter.
    assert soon.run_after == soon.created_at + timedelta(minutes=5)
    assert client.submit("mirror", depends_on=[soon]).why()[0].code == "dependencies"
    assert client.submit(mirror, queue="slow").queue == "slow"


def test_pending_run_is_postponed_by_a_delay_or_until_a_time(client: HttpClient) -> None:
    run = client.submit("mirror").postpone(timedelta(hours=1))
    assert (run.status, run.why()[0].code) == ("PENDING", "postponed")
    client.postpone(run, datetime(2099, 1, 1, tzinfo=UTC))
    assert run.why()[0].detail == "postponed until 2099-01-01T00:00:00Z"
    with pytest.raises(BadInput, match="/until"):
        run.postpone()


def test_submit_many_creates_runs_of_one_task_or_several(client: HttpClient) -> None:
    many = client.submit_many("mirror", [{"n": n} for n in range(10)])
    assert [run.parameters["n"] for run in many] == list(range(10))
    assert all(run.created for run in many)
    mixed = client.submit_many([Submission("mirror", {"n": 1}), Submission("typed", {"scenario": "x"}, {"queue": "q"})])
    assert [(run.model, run.queue) for run in mixed] == [("mirror", "default"), ("typed", "q")]


def test_runs_of_a_job_are_listed_by_its_id(client: HttpClient, server: Server) -> None:
    client.submit("mirror")
    with server.client() as plain:
        tasks = [{"entrypoint": "mirror"}] * 3
        job = plain.post("/jobs", json={"name": "nightly", "tasks": tasks}).json()["job_id"]
    first = client.list(job_id=job, limit=2)
    assert first.next_cursor is not None
    found = [*first, *client.list(job_id=job, cursor=first.next_cursor)]
    assert [run.job_id for run in found] == [job] * 3
    assert client.list(job_id=job, status="FAILED") == []
    with pytest.raises(BadInput, match="/job_id"):
        client.list(job_id="nightly")


def test_errors_are_the_same_as_those_of_other_clients(
    client: HttpClient, server: Server, manual_worker: ManualWorker
) -> None:
    run = client.submit("typed", {"scenario": "x"}, key="k")
    with pytest.raises(KeyReused) as reused:
        client.submit("typed", {"scenario": "y"}, key="k")
    assert reused.value.fields == ("/parameters/scenario",)
    assert reused.value.run_id == run.id
    assert reused.value.problem is not None
    assert reused.value.problem["status"] == 409
    with server.client() as plain:
        job = plain.post("/jobs", json={"name": "nightly"}, headers={"Idempotency-Key": "j"}).json()
    with pytest.raises(KeyReused) as reused:
        client.submit("mirror", key="j")
    assert (reused.value.run_id, reused.value.job_id) == (None, job["job_id"])
    with pytest.raises(UnknownTask):
        client.submit("nope")
    with pytest.raises(BadParameters) as bad:
        client.submit("typed", {"months": "many"})
    assert {problem.pointer for problem in bad.value.problems} == {"/parameters/scenario", "/parameters/months"}
    with pytest.raises(NotCanonical):
        client.submit("mirror", {"x": float("nan")})
    with pytest.raises(BadInput):
        client.submit("mirror", priority=1000)
    with pytest.raises(BadInput):
        client.submit("mirror", key="not a key")
    with pytest.raises(BadInput):
        client.list(status="DONE")
    for unknown in ("x", "01994c3e-7d1c-7c62-bd1b-0e2d1c5f6a7b"):
        with pytest.raises(RunNotFound):
            client.get(unknown)
    with pytest.raises(RunEnded):
        run.retry()
    manual_worker.fail(manual_worker.claim(run.id), "no luck")
    with pytest.raises(RunFailed) as failed:
        run.result()
    assert failed.value.error == {"class": "ValueError", "message": "no luck"}
    assert run.retry().status == "PENDING"
    assert run.cancel("enough").status == "CANCELLED"
    with pytest.raises(RunCancelled):
        run.result()
    with pytest.raises(NotFound):
        client.drain_worker("01994c3e-7d1c-7c62-bd1b-0e2d1c5f6a7b")


def test_queues_and_workers_are_operated_over_http(client: HttpClient, manual_worker: ManualWorker) -> None:
    client.pause_queue("slow", reason="why not")
    (queue,) = client.queues()
    assert (queue.name, queue.pause_reason) == ("slow", "why not")
    client.resume_queue("slow")
    assert client.queues()[0].paused_at is None
    (worker,) = client.workers()
    assert (worker.id, worker.status) == (manual_worker.id, "idle")
    assert client.drain_worker(manual_worker.id)


def test_events_and_logs_are_followed(client: HttpClient, manual_worker: ManualWorker) -> None:
    run = client.submit("mirror")
    claim = manual_worker.claim(run.id)
    manual_worker.log(claim, "one")
    followed = client.follow_events(run)
    assert next(followed).type == "SUBMITTED"
    assert next(followed).type == "CLAIMED"
    lines = client.follow_logs(run)
    assert next(lines).message == "one"
    manual_worker.log(claim, "two")
    assert next(lines).message == "two"
    manual_worker.succeed(claim, 1)
    assert [event.type for event in followed] == ["SUCCEEDED"]
    assert list(lines) == []
    assert list(client.follow_events(run, after=3)) == []


async def test_asynchronous_client_submits_waits_and_follows(
    server: Server, settings: Settings, manual_worker: ManualWorker
) -> None:
    async with AsyncHttpClient(server.url, settings=settings) as client:
        run = await client.submit("mirror", {"n": 1})
        manual_worker.run(run.id, {"n": 1})
        assert (await run.wait(timeout=10)).status == "SUCCEEDED"
        assert await run.result() == {"n": 1}
        assert [event.type async for event in client.follow_events(run)] == ["SUBMITTED", "CLAIMED", "SUCCEEDED"]
        assert len(await client.submit_many("mirror", [{}, {}])) == 2
        with pytest.raises(RunNotFound):
            await client.get("x")
        assert [found.id for found in await client.list(status="SUCCEEDED")] == [run.id]
