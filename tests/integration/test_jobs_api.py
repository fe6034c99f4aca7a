"""The jobs API, on real workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import AsyncClient, JobEnded, Settings
from holdfast.client.surroundings import Surroundings
from holdfast.domain.errors import BadInput, HoldfastError, JobNotFound, LeaseLost, RunNotFound, UnknownTask
from holdfast.jobs import AsyncJobs, View, ambient, sync
from holdfast.services import services
from tests.integration.jobs_support import disagreements
from tests.integration.worker_support import Stage, eventually

TASKS = "tests.integration.job_tasks"


@pytest.fixture
def stage(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.delenv("HOLDFAST_TEST_RUN_DIRECTORY", raising=False)
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database_url)
    monkeypatch.setenv("HOLDFAST_TASKS", TASKS)
    monkeypatch.setenv("HOLDFAST_ARTIFACTS", str(tmp_path / "artifacts"))
    monkeypatch.setenv("HOLDFAST_LEASE_SECONDS", "3")
    stage = Stage(database_url, tmp_path, tasks=(TASKS,))
    yield stage
    stage.close()
    ambient.close()
    with psycopg.connect(database_url) as connection:
        assert disagreements(connection) == []


@pytest.fixture
def worker(stage: Stage) -> Iterator[None]:
    with Surroundings(stage.settings) as surroundings, stage.worker(services=services(surroundings)):
        yield


def ended(job: Any, within: float = 60) -> Any:
    return sync.wait_for_job(job, within)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.usefixtures("worker")
class TestRunning:
    def test_a_job_runs_its_tasks_in_order_of_their_dependencies(self, stage: Stage) -> None:
        path = str(stage.file("notes"))
        job = sync.create_job(
            name="ordered",
            description="three in a row, and one that is not needed",
            tasks=[
                {"entrypoint": "job.note", "kwargs": {"path": path, "text": "c"}, "depends_on": ["b"]},
                {"entrypoint": "job.note", "kwargs": {"path": path, "text": "b"}, "key": "b", "depends_on": ["a"]},
                {"entrypoint": "job.note", "kwargs": {"path": path, "text": "a"}, "key": "a"},
                {
                    "entrypoint": "job.note",
                    "kwargs": {"path": path, "text": "never"},
                    "depends_on": [{"task": "a", "on": "failure"}],
                },
            ],
        )
        job = ended(job)
        assert (job.status, job.completed_tasks, job.total_tasks) == ("SUCCEEDED", 3, 4)
        assert lines(stage.file("notes")) == ["a", "b", "c"]
        assert [task.key for task in job.tasks] == [None, "b", "a", None]
        assert job.tasks[0].result() == "c"
        assert job.tasks[3].status == "CANCELLED"

    def test_tasks_grow_their_job_and_a_retry_adds_nothing_twice(self, stage: Stage) -> None:
        path = stage.file("grown")
        kwargs = {"path": str(path), "depth": 3, "fail_first": True}
        job = ended(sync.create_job("growing", [{"entrypoint": "job.grow", "kwargs": kwargs}]))
        assert (job.status, job.total_tasks) == ("SUCCEEDED", 15)
        assert sorted(lines(path)) == sorted(["3", "3"] + ["2"] * 2 + ["1"] * 4 + ["0"] * 8)

    def test_children_that_come_with_the_finish(self, stage: Stage) -> None:
        path = stage.file("grown")
        kwargs = {"path": str(path), "depth": 2, "when": "finish", "fail_first": True}
        job = ended(sync.create_job("growing", [{"entrypoint": "job.grow", "kwargs": kwargs}]))
        assert (job.status, job.total_tasks) == ("SUCCEEDED", 7)

    def test_a_child_that_cannot_be_added_fails_its_parent_and_nobody_else(self, stage: Stage) -> None:
        path = str(stage.file("notes"))
        tasks = [{"entrypoint": "job.note", "kwargs": {"path": path, "text": n}} for n in range(20)]
        job = ended(sync.create_job("astray", [{"entrypoint": "job.astray", "kwargs": {"path": path}}, *tasks]))
        assert (job.status, job.completed_tasks, job.failed_tasks) == ("FAILED", 20, 1)
        assert "no run or map has this id" in str(job.tasks[0].error_message)

    def test_children_without_a_key_are_known_by_the_order_of_calls(self, stage: Stage) -> None:
        path = stage.file("notes")
        kwargs = {"path": str(path), "children": 3}
        job = ended(sync.create_job("growing", [{"entrypoint": "job.grow_unnamed", "kwargs": kwargs}]))
        assert (job.status, job.total_tasks) == ("SUCCEEDED", 4)
        assert sorted(lines(path)) == ["0", "1", "2"]

    def test_map_and_collect_outside_of_a_task_make_a_job(self, stage: Stage) -> None:
        handle = sync.map("job.square", range(1000), chunk_size=30, power=2)
        join = sync.collect(handle, into="job.total")
        assert sync.collect(handle, into="job.total").id == join.id
        job = ended(handle.job_id)
        assert (job.status, job.total_tasks, len(handle)) == ("SUCCEEDED", 35, 34)
        assert sync.get_task(join.id).result() == {
            "sum": sum(n * n for n in range(1000)),
            "offsets": list(range(0, 1000, 30)),
        }

    def test_an_empty_map_is_collected_at_once(self, stage: Stage) -> None:
        handle = sync.map("job.square", [], chunk_size=30)
        join = sync.collect(handle, into="job.total")
        job = ended(handle.job_id)
        assert (job.status, job.total_tasks) == ("SUCCEEDED", 1)
        assert sync.get_task(join).result() == {"sum": 0, "offsets": []}

    def test_a_map_without_a_join_lets_its_job_end(self, stage: Stage) -> None:
        handle = sync.map("job.square", [1, 2, 3], chunk_size=2)
        assert (ended(handle.job_id).status, len(handle)) == ("SUCCEEDED", 2)

    def test_a_task_maps_in_its_own_job_and_a_retry_adds_nothing_twice(self, stage: Stage) -> None:
        path = stage.file("totals")
        kwargs = {"rows": 100, "chunk_size": 10, "path": str(path)}
        job = ended(sync.create_job("sweep", [{"entrypoint": "job.sweep", "kwargs": kwargs}]))
        assert (job.status, job.total_tasks) == ("SUCCEEDED", 12)
        assert lines(path) == ["total"]
        assert sync.get_task(job.tasks[0].result()["join"]).result()["sum"] == 4950

    def test_maps_within_maps(self, stage: Stage) -> None:
        path = stage.file("totals")
        handle = sync.map("job.nest", list(range(20)), chunk_size=5, path=str(path))
        job = ended(handle.job_id)
        assert (job.status, job.total_tasks) == ("SUCCEEDED", 4 + 4 * 3 + 4)
        sums = sorted(task.result()["sum"] for task in job.tasks if task.entrypoint == "job.total")
        assert (sums, lines(path)) == ([10, 35, 60, 85], ["total"] * 4)

    def test_results_that_are_too_large_for_a_row_are_streamed_too(self, stage: Stage) -> None:
        handle = sync.map("job.large", list(range(5)), chunk_size=1)
        join = sync.collect(handle, into="job.lengths")
        ended(handle.job_id)
        assert sync.get_task(join).result() == [5, "xxxxx1", "xxxxx4", [200_001] * 5]

    def test_only_what_failed_is_retried_and_then_the_join(self, stage: Stage) -> None:
        path = stage.file("flag")
        handle = sync.map("job.fail_some", list(range(60)), chunk_size=1, path=str(path), every=10)
        join = sync.collect(handle, into="job.count", path=str(path))
        job = ended(handle.job_id)
        assert (job.status, job.failed_tasks, sync.get_task(join).status) == ("FAILED", 6, "CANCELLED")
        assert sync.get_task(join).reason.startswith("unreachable")
        before = lines(stage.file("flag.ran"))
        path.touch()
        assert sync.retry_failed_tasks(job.id) == 7
        job = ended(job)
        assert (job.status, job.completed_tasks) == ("SUCCEEDED", 61)
        assert lines(stage.file("flag.ran"))[len(before) :][-1] == "join"
        assert sorted(lines(stage.file("flag.ran"))[len(before) : -1], key=int) == [str(n) for n in range(0, 60, 10)]

    def test_a_cancelled_job_stops_what_runs_and_starts_nothing(self, stage: Stage) -> None:
        path = stage.file("held")
        job = sync.create_job("held", [{"entrypoint": "job.hold", "kwargs": {"path": str(path)}}] * 20)
        stage.said("held", 2)
        cancelled = sync.cancel_job(job.id)
        started = lines(path)
        assert cancelled.cancelled_tasks >= 18
        job = ended(job, 10)
        assert (job.status, job.cancelled_tasks) == ("CANCELLED", 20)
        assert lines(path) == started
        with pytest.raises(JobEnded):
            sync.add_task_to_job(job.id, "job.note", {"path": str(path)})

    def test_a_job_out_of_time_fails(self, stage: Stage) -> None:
        path = stage.file("held")
        job = sync.create_job("slow", [{"entrypoint": "job.hold", "kwargs": {"path": str(path)}}] * 3, timeout=0.5)
        job = ended(job, 30)
        assert (job.status, job.cancelled_tasks) == ("FAILED", 3)
        assert "timed out" in job.reason

    def test_temporary_resources_go_when_the_job_has_ended(self, stage: Stage) -> None:
        file, folder, kept = stage.file("a.tmp"), stage.file("folder"), stage.file("kept.tmp")
        folder.mkdir()
        (folder / "b").touch()
        for one in (file, kept):
            one.touch()
        job = sync.create_job("waits", [{"entrypoint": "job.hold", "kwargs": {"path": str(stage.file("held"))}}])
        sync.remove_with_job(file, job_id=job.id)
        sync.remove_with_job(file, job_id=job.id)
        sync.remove_with_job(folder, job_id=job.id)
        sync.remove_with_job(kept, job_id=job.id, keep_for_retry=True)
        stage.said("held")
        assert file.exists()
        sync.cancel_job(job.id)
        eventually(lambda: not file.exists() and not folder.exists())
        assert kept.exists()
        with pytest.raises(JobEnded):
            sync.remove_with_job(file, job_id=ended(job).id)

    async def test_the_samples_of_the_source(self, stage: Stage) -> None:
        from holdfast.jobs import (
            add_task_to_job,
            cancel_job,
            create_job,
            deregister_worker,
            get_job,
            get_task,
            health_check,
            list_jobs,
            list_workers,
            register_worker,
            retry_failed_tasks,
            wait_for_job,
            worker_heartbeat,
        )

        job = await create_job(
            name="data_processing_pipeline",
            tasks=[
                {
                    "entrypoint": "myapp.processors.load_and_process_data",
                    "kwargs": {"source": "dataset_v1"},
                }
            ],
        )
        await wait_for_job(job.id, 60)
        job = await get_job(job.id)
        assert f"Status: {job.status}, Progress: {job.completed_tasks}/{job.total_tasks}" == (
            "Status: SUCCEEDED, Progress: 2/2"
        )
        assert [task.kwargs for task in job.tasks] == [{"source": "dataset_v1"}, {"input_obj": "tbl_dataset_v1"}]
        assert await list_jobs(status="running") == []
        assert [one.id for one in await list_jobs(status="completed")] == [job.id]
        held = await create_job(
            name="pipeline", tasks=[{"entrypoint": "job.hold", "kwargs": {"path": str(stage.file("held"))}}]
        )
        task = await add_task_to_job(job_id=held.id, entrypoint="myapp.process", kwargs={"data": "tbl_xyz"})
        task = await get_task(task.id)
        assert (task.entrypoint, task.kwargs, task.job_id) == ("myapp.process", {"data": "tbl_xyz"}, held.id)
        await cancel_job(held.id)
        await wait_for_job(held.id, 10)
        assert await retry_failed_tasks(held.id) >= 1
        await cancel_job(held.id)
        await wait_for_job(held.id, 10)

        worker = await register_worker(hostname="worker-01", pid=12345)
        await worker_heartbeat(worker.id)
        assert worker.id in {one.id for one in await list_workers(status="active")}
        await deregister_worker(worker.id)
        assert worker.id in {one.id for one in await list_workers(status="stopped")}
        assert await health_check() == {
            "healthy": True,
            "checks": {"database": True, "workers": True, "stale_tasks": True},
        }


class TestAsking:
    def test_what_is_wrong_with_tasks_is_told_by_pointer(self, stage: Stage) -> None:
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

    def test_a_circle_is_refused_and_named(self, stage: Stage) -> None:
        def one(key: str, *on: str) -> dict[str, Any]:
            return {"entrypoint": "job.note", "kwargs": {"path": "x"}, "key": key, "depends_on": list(on)}

        with pytest.raises(BadInput, match=r"circle: b -> c -> d -> b"):
            sync.create_job("round", [one("a", "b"), one("b", "c"), one("c", "d"), one("d", "b", "e"), one("e")])
        with pytest.raises(BadInput, match=r"circle: a -> a"):
            sync.create_job("round", [one("a", "a")])

    def test_keys_find_what_they_name(self, stage: Stage) -> None:
        note = {"entrypoint": "job.note", "kwargs": {"path": "x"}}
        job = sync.create_job("keys", [{**note, "key": "first"}])
        added = sync.add_task_to_job(job.id, "job.note", {"path": "x"}, key="second", depends_on=["first"])
        again = sync.add_task_to_job(job.id, "job.note", {"path": "x"}, key="second")
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
            f"waits for 2 others to end: {first} (job.note, PENDING), {added.id} (job.note, PENDING)"
            if first < added.id
            else f"waits for 2 others to end: {added.id} (job.note, PENDING), {first} (job.note, PENDING)",
        )
        with pytest.raises(BadInput, match="no task has the key 'none'"):
            sync.add_task_to_job(job.id, "job.note", {"path": "x"}, depends_on=["none"])
        assert sync.get_job(job.id).total_tasks == 3

    def test_lists_and_filters(self, stage: Stage) -> None:
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

    def test_what_is_not_there(self, stage: Stage) -> None:
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

    def test_a_map_is_made_without_its_data(self, stage: Stage) -> None:
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

    def test_a_task_that_is_mapped_is_checked_before_anything_is_made(self, stage: Stage) -> None:
        with pytest.raises(BadInput, match="power"):
            sync.map("job.square", [1], power="two")
        with pytest.raises(BadInput, match="view"):
            sync.map("job.note", [1], path="x")
        assert sync.list_jobs() == []

    def test_a_job_that_is_only_waited_for(self, stage: Stage) -> None:
        from holdfast.domain.errors import WaitTimeout

        job = sync.create_job("waits", [{"entrypoint": "job.note", "kwargs": {"path": "x"}}])
        with pytest.raises(WaitTimeout):
            sync.wait_for_job(job, 0.05)

    def test_workers_come_and_go(self, stage: Stage) -> None:
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

    def test_health_says_what_is_wrong(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        assert sync.health_check()["checks"] == {"database": True, "workers": False, "stale_tasks": True}
        ambient.close()
        monkeypatch.setenv("HOLDFAST_DATABASE_URL", "postgresql://127.0.0.1:1/none")
        assert sync.health_check() == {
            "healthy": False,
            "checks": {"database": False, "workers": False, "stale_tasks": False},
        }

    def test_figures_have_the_names_of_the_source(self, stage: Stage) -> None:
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

    async def test_the_same_on_an_asynchronous_client(self, stage: Stage) -> None:
        async with AsyncClient(stage.settings) as client:
            jobs = AsyncJobs(client)
            job = await jobs.create_job("async", [{"entrypoint": "job.note", "kwargs": {"path": "x"}}])
            handle = await jobs.map("job.square", range(10), chunk_size=5, options={"job_id": job.id})
            await jobs.collect(handle, into="job.total")
            assert (await jobs.get_job(job.id)).total_tasks == 4
            assert (await jobs.cancel_job(job.id)).status == "CANCELLED"
            assert next(task.entrypoint for task in (await jobs.get_job(job.id)).tasks) == "job.note"

    def test_in_the_callers_transaction(self, stage: Stage) -> None:
        with psycopg.connect(stage.url) as connection:
            jobs = sync.Jobs(stage.client.on(connection))
            job = jobs.create_job("mine", [{"entrypoint": "job.note", "kwargs": {"path": "x"}}])
            connection.rollback()
            with pytest.raises(JobNotFound):
                sync.get_job(job.id)
            job = jobs.create_job("mine", [{"entrypoint": "job.note", "kwargs": {"path": "x"}}])
            connection.commit()
        assert sync.get_job(job.id).total_tasks == 1

    def test_a_view_by_hand(self) -> None:
        view = View.of([1, 2, 3])
        assert (view.read(), len(view), view.offset, list(view)) == ([1, 2, 3], 3, 0, [1, 2, 3])
        assert Settings().job_timeout_seconds is None
