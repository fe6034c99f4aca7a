"""Requests that the jobs API rejects, and responses that need no worker."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from holdfast import AsyncClient, Settings
from holdfast.client import shared
from holdfast.domain.errors import BadInput, HoldfastError, JobNotFound, LeaseLost, RunNotFound, UnknownTask
from holdfast.jobs import AsyncJobs, View, sync
from tests.integration.jobs_api_support import stage, worker
from tests.integration.worker_support import Stage

__all__ = ["stage", "worker"]


class TestRequests:
    def test_problems_of_tasks_have_pointers(self, stage: Stage) -> None:
        path = str(stage.file("x"))
        good = {"entrypoint": "job.note", "kwargs": {"path": path}}
        wrong: list[tuple[list[Any], str]] = [
            ([{"entrypoint": "no.such"}], "/tasks/0/entrypoint"),
            ([{"kwargs": {}}], "/tasks/0/entrypoint"),
            ([{"entrypoint": "job.note", "kwargs": {}}], "/tasks/0/kwargs/path"),
            ([good, {**good, "depends": []}], "/tasks/1/depends"),
            ([{**good, "depends_on": "a"}], "/tasks/0/depends_on"),
            ([{**good, "depends_on": ["a"]}], "/tasks/0/depends_on/0"),
            ([{**good, "depends_on": [{"task": "a", "on": "luck"}]}], "/tasks/0/depends_on/0/on"),
            ([{**good, "key": "a"}, {**good, "key": "a"}], "/tasks/1/key"),
            ([{**good, "max_retries": -1}], "/tasks/0/max_retries"),
            ([{**good, "timeout": 0}], "/tasks/0/timeout"),
            ([{**good, "critical": "yes"}], "/tasks/0/critical"),
            ([{**good, "priority": 1000}], "/tasks/0/priority"),
            (["job.note"], "/tasks/0"),
        ]
        for tasks, pointer in wrong:
            with pytest.raises(BadInput) as caught:
                sync.create_job("wrong", tasks)
            assert pointer in [problem.pointer for problem in caught.value.problems]
        with pytest.raises(BadInput):
            sync.create_job("")
        assert sync.list_jobs() == []

    def test_a_cycle_is_refused_and_named(self, stage: Stage) -> None:
        def one(key: str, *on: str) -> dict[str, Any]:
            return {"entrypoint": "job.note", "kwargs": {"path": "x"}, "key": key, "depends_on": list(on)}

        with pytest.raises(BadInput, match=r"cycle: b -> c -> d -> b"):
            sync.create_job("round", [one("a", "b"), one("b", "c"), one("c", "d"), one("d", "b", "e"), one("e")])
        with pytest.raises(BadInput, match=r"cycle: a -> a"):
            sync.create_job("round", [one("a", "a")])

    def test_dependencies_are_found_by_key(self, stage: Stage) -> None:
        note = {"entrypoint": "job.note", "kwargs": {"path": "x"}}
        job = sync.create_job("keys", [{**note, "key": "first"}])
        added = sync.add_task_to_job(job.id, "job.note", {"path": "x"}, key="second", depends_on=["first"])
        again = sync.add_task_to_job(job.id, "job.note", {"path": "x"}, key="second", depends_on=["first"])
        third = sync.add_task_to_job(job.id, "job.note", {"path": "x"}, depends_on=["first", "second", added])
        assert (added.id, sync.add_task_to_job(job.id, "job.note", {"path": "x"}, key="first").id) == (
            again.id,
            job.tasks[0].id,
        )
        edges = stage.query("select run_id::text, on_id::text from holdfast.dependencies order by 1, 2")
        first = job.tasks[0].id
        assert edges == sorted([(added.id, first), (third.id, first), (third.id, added.id)])
        why = stage.client.why(third.id)[0]
        assert (why.code, why.detail) == (
            "dependencies",
            f"waiting for 2 dependencies to end: {first} (job.note, PENDING), {added.id} (job.note, PENDING)"
            if first < added.id
            else f"waiting for 2 dependencies to end: {added.id} (job.note, PENDING), {first} (job.note, PENDING)",
        )
        with pytest.raises(BadInput, match="no task has the key 'none'"):
            sync.add_task_to_job(job.id, "job.note", {"path": "x"}, depends_on=["none"])
        assert sync.get_job(job.id).total_tasks == 3

    def test_jobs_are_listed_and_filtered(self, stage: Stage) -> None:
        jobs = [sync.create_job(f"job {n}", [{"entrypoint": "job.note", "kwargs": {"path": "x"}}]) for n in range(5)]
        assert [job.id for job in sync.list_jobs()] == [job.id for job in reversed(jobs)]
        assert len(sync.list_jobs(status="PENDING")) == len(sync.list_jobs(status="pending")) == 5
        page = sync.list_jobs(limit=2)
        assert [job.name for job in sync.list_jobs(limit=2, cursor=page[-1].id)] == ["job 2", "job 1"]
        assert [job.name for job in sync.list_jobs(name="job 3")] == ["job 3"]
        sync.cancel_job(jobs[0].id, reason="not needed")
        assert [job.reason for job in sync.list_jobs(status="cancelled")] == ["not needed"]
        with pytest.raises(BadInput):
            sync.list_jobs(status="odd")

    def test_unknown_ids_raise_not_found(self, stage: Stage) -> None:
        ghost = "018f0000-0000-7000-8000-000000000000"
        for ask in (sync.get_job, sync.cancel_job, sync.retry_failed_tasks):
            with pytest.raises(JobNotFound):
                ask(ghost)
            with pytest.raises(JobNotFound):
                ask("nonsense")
        with pytest.raises(RunNotFound):
            sync.get_task(ghost)
        with pytest.raises(JobNotFound):
            sync.add_task_to_job(ghost, "job.note", {"path": "x"})
        with pytest.raises(UnknownTask):
            sync.map("no.such", [1])
        with pytest.raises(HoldfastError, match="no current job"):
            sync.add_task_to_current_job("job.note", {"path": "x"})
        assert sync.get_current_job_id() is None

    def test_map_is_created_without_reading_its_data(self, stage: Stage) -> None:
        handle = sync.map("job.read", range(0, 10**12, 7), chunk_size=10**9)
        assert len(handle) == 143
        tasks = sync.get_job(handle.job_id).tasks
        assert tasks[1].kwargs == {"view": {"$view": {"offset": 10**9, "range": [7 * 10**9, 14 * 10**9, 7]}}}
        with pytest.raises(BadInput, match="chunk_size"):
            sync.map("job.read", [1], chunk_size=0)
        with pytest.raises(BadInput, match=r"too large|more than"):
            sync.map("job.read", ["x" * 1000] * 2000, chunk_size=2000)
        with pytest.raises(BadInput, match="cannot map over"):
            sync.map("job.read", {1, 2})
        sync.cancel_job(handle.job_id)

    def test_mapped_task_is_checked_before_anything_is_created(self, stage: Stage) -> None:
        with pytest.raises(BadInput, match="power"):
            sync.map("job.square", [1], power="two")
        with pytest.raises(BadInput, match="view"):
            sync.map("job.note", [1], path="x")
        assert sync.list_jobs() == []

    def test_waiting_for_a_job_that_does_not_end_times_out(self, stage: Stage) -> None:
        from holdfast.domain.errors import WaitTimeout

        job = sync.create_job("waits", [{"entrypoint": "job.note", "kwargs": {"path": "x"}}])
        with pytest.raises(WaitTimeout):
            sync.wait_for_job(job, 0.05)

    def test_workers_are_registered_and_deregistered(self, stage: Stage) -> None:
        first = sync.register_worker(hostname="pod-0", pid=1, name="pod-0")
        again = sync.register_worker(hostname="pod-0", pid=1, name="pod-0")
        assert first.id != again.id
        assert {worker.name for worker in sync.list_workers()} == {"pod-0"}
        assert sync.worker_heartbeat(first.id).status == "idle"
        stage.query(
            "update holdfast.workers set heartbeat_at = now() - interval '1 hour', expires_at = now() where id = %s",
            first.id,
        )
        assert [worker.id for worker in sync.list_workers(status="stopped")] == [first.id]
        with pytest.raises(LeaseLost):
            sync.worker_heartbeat(first.id)
        sync.deregister_worker(again.id)
        assert sync.list_workers(status="active") == []
        with pytest.raises(BadInput):
            sync.list_workers(status="odd")

    def test_health_check_reports_failed_checks(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        assert sync.health_check()["checks"] == {"database": True, "workers": False, "stale_tasks": True}
        shared.close()
        monkeypatch.setenv("HOLDFAST_DATABASE_URL", "postgresql://127.0.0.1:1/none")
        assert sync.health_check() == {
            "healthy": False,
            "checks": {"database": False, "workers": False, "stale_tasks": False},
        }

    def test_metrics_have_the_names_of_the_source(self, stage: Stage) -> None:
        sync.create_job("one", [{"entrypoint": "job.note", "kwargs": {"path": "x"}}] * 3)
        sync.cancel_job(sync.create_job("two").id)
        sync.register_worker(hostname="a", pid=1)
        found = sync.metrics()
        assert {name: found[name] for name in ("jobs_created_total", "tasks_created_total", "task_queue_depth")} == {
            "jobs_created_total": 2,
            "tasks_created_total": 3,
            "task_queue_depth": 3,
        }
        assert (found["workers_active"], found["jobs_cancelled_total"]) == (1, 1)
        assert found["job_duration_seconds"].count == 1
        assert list(found["worker_heartbeat_age"]) == ["a:1"]

    async def test_jobs_api_works_on_an_asynchronous_client(self, stage: Stage) -> None:
        async with AsyncClient(stage.settings) as client:
            jobs = AsyncJobs(client)
            job = await jobs.create_job("async", [{"entrypoint": "job.note", "kwargs": {"path": "x"}}])
            handle = await jobs.map("job.square", range(10), chunk_size=5, options={"job_id": job.id})
            await jobs.collect(handle, into="job.total")
            assert (await jobs.get_job(job.id)).total_tasks == 4
            assert (await jobs.cancel_job(job.id)).status == "CANCELLED"
            assert next(task.entrypoint for task in (await jobs.get_job(job.id)).tasks) == "job.note"

    def test_jobs_api_works_in_the_callers_transaction(self, stage: Stage) -> None:
        with psycopg.connect(stage.url) as connection:
            jobs = sync.Jobs(stage.client.on(connection))
            job = jobs.create_job("mine", [{"entrypoint": "job.note", "kwargs": {"path": "x"}}])
            connection.rollback()
            with pytest.raises(JobNotFound):
                sync.get_job(job.id)
            job = jobs.create_job("mine", [{"entrypoint": "job.note", "kwargs": {"path": "x"}}])
            connection.commit()
        assert sync.get_job(job.id).total_tasks == 1

    def test_view_can_be_created_directly(self) -> None:
        view = View.of([1, 2, 3])
        assert (view.read(), len(view), view.offset, list(view)) == ([1, 2, 3], 3, 0, [1, 2, 3])
        assert Settings().job_timeout_seconds is None
