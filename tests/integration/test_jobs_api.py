"""The jobs API, on real workers."""

from __future__ import annotations

import pytest

from holdfast import JobEnded
from holdfast.jobs import sync
from tests.integration.jobs_api_support import ended, lines, stage, worker
from tests.integration.worker_support import Stage, eventually

__all__ = ["stage", "worker"]


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

    def test_tasks_add_to_their_job_and_a_retry_adds_nothing_twice(self, stage: Stage) -> None:
        path = stage.file("grown")
        kwargs = {"path": str(path), "depth": 3, "fail_first": True}
        job = ended(sync.create_job("growing", [{"entrypoint": "job.grow", "kwargs": kwargs}]))
        assert (job.status, job.total_tasks) == ("SUCCEEDED", 15)
        assert sorted(lines(path)) == sorted(["3", "3"] + ["2"] * 2 + ["1"] * 4 + ["0"] * 8)

    def test_children_can_be_added_when_their_parent_succeeds(self, stage: Stage) -> None:
        path = stage.file("grown")
        kwargs = {"path": str(path), "depth": 2, "when": "finish", "fail_first": True}
        job = ended(sync.create_job("growing", [{"entrypoint": "job.grow", "kwargs": kwargs}]))
        assert (job.status, job.total_tasks) == ("SUCCEEDED", 7)

    def test_child_that_cannot_be_added_fails_only_its_parent(self, stage: Stage) -> None:
        path = str(stage.file("notes"))
        tasks = [{"entrypoint": "job.note", "kwargs": {"path": path, "text": n}} for n in range(20)]
        job = ended(sync.create_job("astray", [{"entrypoint": "job.astray", "kwargs": {"path": path}}, *tasks]))
        assert (job.status, job.completed_tasks, job.failed_tasks) == ("FAILED", 20, 1)
        assert "no run or map has this id" in str(job.tasks[0].error_message)

    def test_children_without_a_key_are_identified_by_the_order_of_calls(self, stage: Stage) -> None:
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

    @pytest.mark.parametrize(
        ("kwargs", "named"),
        [
            ({"first": 6, "later": 3}, "/dataset/range/1: stored 6, requested 3"),
            ({"first": 6, "later": 6, "children": 1}, "key note 0 (job.note, added by attempt 1)"),
        ],
    )
    def test_task_that_crashes_and_then_requests_something_else_fails_without_retry(
        self, stage: Stage, kwargs: dict[str, int], named: str
    ) -> None:
        path = stage.file("attempts")
        job = ended(sync.create_job("remapped", [{"entrypoint": "job.remap", "kwargs": {"path": str(path), **kwargs}}]))
        assert (job.status, lines(path)) == ("FAILED", ["1", "2"])
        assert "ChildDiffers" in str(job.reason)
        assert named in str(job.tasks[0].error_message)
        (join,) = [one for one in job.tasks if one.entrypoint == "job.total"]
        assert join.result() == {"sum": 15, "offsets": list(range(6))}

    def test_maps_can_be_nested(self, stage: Stage) -> None:
        path = stage.file("totals")
        handle = sync.map("job.nest", list(range(20)), chunk_size=5, path=str(path))
        job = ended(handle.job_id)
        assert (job.status, job.total_tasks) == ("SUCCEEDED", 4 + 4 * 3 + 4)
        sums = sorted(task.result()["sum"] for task in job.tasks if task.entrypoint == "job.total")
        assert (sums, lines(path)) == ([10, 35, 60, 85], ["total"] * 4)

    def test_results_that_are_too_large_for_a_row_can_be_collected(self, stage: Stage) -> None:
        handle = sync.map("job.large", list(range(5)), chunk_size=1)
        join = sync.collect(handle, into="job.lengths")
        ended(handle.job_id)
        assert sync.get_task(join).result() == [5, "xxxxx1", "xxxxx4", [200_001] * 5]

    def test_only_failed_tasks_are_retried_and_then_the_join_runs(self, stage: Stage) -> None:
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

    def test_cancelled_job_stops_its_running_tasks_and_starts_no_others(self, stage: Stage) -> None:
        path = stage.file("held")
        job = sync.create_job("held", [{"entrypoint": "job.hold", "kwargs": {"path": str(path)}}] * 20)
        with stage.worker():
            stage.said("held", 2)
            cancelled = sync.cancel_job(job.id)
            started = lines(path)
            assert cancelled.cancelled_tasks >= 18
            job = ended(job, 10)
        assert (job.status, job.cancelled_tasks) == ("CANCELLED", 20)
        assert lines(path) == started
        with pytest.raises(JobEnded):
            sync.add_task_to_job(job.id, "job.note", {"path": str(path)})

    def test_job_past_its_timeout_fails(self, stage: Stage) -> None:
        path = stage.file("held")
        job = sync.create_job("slow", [{"entrypoint": "job.hold", "kwargs": {"path": str(path)}}] * 3, timeout=0.5)
        job = ended(job, 30)
        assert (job.status, job.cancelled_tasks) == ("FAILED", 3)
        assert "timed out" in job.reason

    def test_temporary_resources_are_removed_after_the_job_has_ended(self, stage: Stage) -> None:
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

    async def test_samples_of_the_source_run(self, stage: Stage) -> None:
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
