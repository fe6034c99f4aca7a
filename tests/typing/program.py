"""A user's program that makes every public call: `make check` runs mypy and pyright on it in strict mode.

It is never run. Every line with an ignore is a mistake that both checkers must find.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from holdfast import (
    AsyncClient,
    AsyncHttpClient,
    AsyncRun,
    Client,
    HttpClient,
    Retry,
    Run,
    Settings,
    Status,
    Submission,
    SubmitOptions,
    Task,
    current_run,
    jobs,
    task,
)
from holdfast.jobs import AsyncJobs, Job, Jobs, JobTask, MapHandle, Results, View, sync


@task("typed.add", queue="models", retry=Retry(max_attempts=5), timeout=timedelta(minutes=5))
def add(a: int, b: int = 0) -> int:
    run = current_run()
    run.progress(1, 2, unit="rows", stage="adding")
    run.log("halfway")
    run.check()
    assert_type(run.step("once", lambda: a + b), int)
    assert_type(run.submit("typed.add", {"a": 1}), str)
    return a + b


@task("typed.total")
def total(results: Results) -> int:
    return sum(results)


@task("typed.part")
async def part(view: View, power: int = 2) -> float:
    return float(sum(row**power for row in view.read()))


def call_a_task() -> None:
    assert_type(add(1, b=2), int)
    assert_type(add.name, str)
    add("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def use(client: Client) -> None:
    options = SubmitOptions(key="k", priority=3)
    run = client.submit(add, {"a": 1}, queue="models", run_after=timedelta(seconds=5), tags=["nightly"])
    assert_type(run, Run)
    client.submit("typed.add", {"a": 1}, **options)
    client.submit("typed.add", {"a": 1}, dedupe="active")
    client.submit(add, {"a": 1}, depends_on=[run, {"run": run.id, "on": "always"}], run_after=datetime.now(UTC))
    client.submit(add, {"a": 1}, quue="models")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    client.submit(add, {"a": 1}, priority="high")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(client.submit_many(add, [{"a": 1}, {"a": 2}], concurrency_key="one"), Sequence[Run])
    client.submit_many([Submission(add, {"a": 1}, {"queue": "models"}), Submission("typed.add")])
    assert_type(client.get(run.id).status, Status)
    page = client.list(status="FAILED", model="typed.add", queue="models", tag="nightly", limit=10)
    assert_type(page[0], Run)
    client.list(cursor=page.next_cursor, job_id=run.job_id)
    assert_type(client.wait(run, timeout=60), Run)
    value: dict[str, float] = client.result(run)
    assert_type(client.cancel(run, reason="not needed"), Run)
    assert_type(client.retry(run, by="me"), Run)
    events = client.events(run, after=3)
    assert_type(events[0].type, str)
    assert_type(client.attempts(run)[0].number, int)
    assert_type(client.why(run)[0].code, str)
    assert_type(client.workers()[0].name, str)
    assert_type(client.drain_worker("id"), bool)
    assert_type(client.queues()[0].name, str)
    client.pause_queue("models", reason="upgrade")
    client.resume_queue("models")
    print(client.totals(), client.summary(), client.logs(run, after=2))
    client.add_subscription("ended", webhook="https://example.com/hook", statuses=["FAILED"])
    assert_type(client.subscriptions()[0].subscription.name, str)
    client.pause_subscription("ended")
    client.resume_subscription("ended")
    assert_type(client.rotate_secret("ended"), str)
    client.redeliver(client.deliveries("ended", limit=5)[0].id)
    client.remove_subscription("ended")
    print(value)
    client.close()


def use_a_run(run: Run) -> None:
    assert_type(run.id, str)
    assert_type(run.model, str)
    assert_type(run.attempt_count, int)
    assert_type(run.finished_at, datetime | None)
    assert_type(run.tags, tuple[str, ...])
    assert_type(run.progress, dict[str, Any] | None)
    assert_type(run.created, bool)
    assert_type(run.wait(10).refresh(), Run)
    assert_type(run.cancel("enough"), Run)
    assert_type(run.postpone(timedelta(minutes=5)), Run)
    assert_type(run.retry().as_dict(), dict[str, Any])
    print(run.result(), run.events(), run.attempts(), run.why())
    assert run.finishedat  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


def in_a_transaction(client: Client, connection: object) -> None:
    assert_type(client.on(connection).submit(add, {"a": 1}), Run)


async def use_awaiting(settings: Settings, connection: object) -> None:
    async with AsyncClient(settings, max_connections=4) as client:
        await client.open()
        run = await client.submit(add, {"a": 1}, key="k")
        assert_type(run, AsyncRun)
        await client.on(connection).submit(add, {"a": 1})
        assert_type(await client.submit_many(add, [{"a": 1}]), Sequence[AsyncRun])
        assert_type((await client.list(status="PENDING"))[0], AsyncRun)
        assert_type((await client.get(run)).status, Status)
        assert_type(await run.wait(10), AsyncRun)
        print(await client.wait(run), await client.result(run), await run.result())
        await client.cancel(run)
        await client.postpone(run, timedelta(minutes=5))
        await client.retry(await run.refresh())
        print(await client.events(run), await client.attempts(run), await client.why(run))
        print(await client.workers(), await client.queues(), await client.totals())
        await client.drain_worker("id")
        await client.pause_queue("models")
        await client.resume_queue("models")
        await client.add_subscription("ended", stream="events")
        print(await client.subscriptions(), await client.rotate_secret("ended"))
        await client.pause_subscription("ended")
        await client.resume_subscription("ended")
        for delivery in await client.deliveries():
            await client.redeliver(delivery.id)
        await client.remove_subscription("ended")
        await client.close()


def over_http() -> None:
    with HttpClient("http://127.0.0.1:8000", "token") as client:
        run = client.submit(add, {"a": 1}, key="k", tags=("nightly",))
        assert_type(run.status, Status)
        client.submit_many([Submission(add, {"a": 1})])
        client.submit(add, {"a": 1}, tag="nightly")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        print(client.get(run), client.list(queue="models", limit=5), client.wait(run), client.result(run))
        print(client.cancel(run, reason="enough"), client.retry(run), client.events(run), client.attempts(run))
        print(client.logs(run), client.why(run), client.workers(), client.queues(), client.summary())
        client.drain_worker("id")
        client.pause_queue("models")
        client.resume_queue("models")
        for event in client.follow_events(run):
            assert_type(event.type, str)
        for line in client.follow_logs(run):
            print(line)
        client.close()


async def over_http_awaiting() -> None:
    async with AsyncHttpClient() as client:
        run = await client.submit(add, {"a": 1})
        await client.submit_many(add, [{"a": 1}])
        print(await client.get(run), await client.list(status="FAILED"), await client.wait(run), await run.result())
        print(await client.result(run), await client.cancel(run), await client.retry(run), await client.summary())
        print(await client.events(run), await client.logs(run), await client.attempts(run), await client.why(run))
        print(await client.workers(), await client.queues())
        await client.drain_worker("id")
        await client.pause_queue("models")
        await client.resume_queue("models")
        async for event in client.follow_events(run):
            assert_type(event.type, str)
        async for line in client.follow_logs(run):
            print(line)
        await client.close()


def use_jobs(client: Client) -> None:
    api = Jobs(client)
    job = api.create_job("nightly", [{"entrypoint": add, "kwargs": {"a": 1}, "key": "load"}], timeout=3600)
    assert_type(job, Job)
    assert_type(job.total_tasks, int)
    assert_type(job.tasks[0], JobTask)
    assert_type(job.reason, str | None)
    assert_type(api.get_job(job.id).status, Status)
    assert_type(api.list_jobs("FAILED", limit=5), list[Job])
    added = api.add_task_to_job(job, add, {"a": 2}, key="more", depends_on=["load"])
    assert_type(api.get_task(added), JobTask)
    handle = api.map(part, range(100), chunk_size=10, power=3)
    assert_type(handle, MapHandle)
    assert_type(api.collect(handle, into=total).result(), Any)
    api.remove_with_job("scratch.parquet", job_id=job.id)
    assert_type(api.wait_for_job(job, timeout=60), Job)
    assert_type(api.retry_failed_tasks(job), int)
    assert_type(api.cancel_job(job, reason="enough"), Job)
    worker = api.register_worker(slots=2)
    api.worker_heartbeat(worker)
    api.deregister_worker(worker)
    print(api.list_workers(), api.health_check(), api.metrics(), api.add_task_to_current_job(add, {"a": 1}))


def use_jobs_over_http(client: HttpClient) -> None:
    api = Jobs(client)
    job = api.create_job("nightly", [{"entrypoint": add, "kwargs": {"a": 1}, "key": "load"}], "every night", 3600)
    assert_type(job, Job)
    assert_type(job.tasks[0].status, Status)
    assert_type(api.get_job(job).completed_tasks, int)
    assert_type(api.list_jobs(name="nightly", limit=5)[0], Job)
    assert_type(api.add_task_to_job(job.id, add, {"a": 2}, key="more"), JobTask)
    assert_type(api.wait_for_job(job, timeout=60), Job)
    assert_type(api.retry_failed_tasks(job, by="me"), int)
    assert_type(api.cancel_job(job, reason="enough"), Job)


async def use_jobs_over_http_awaiting(client: AsyncHttpClient) -> None:
    api = AsyncJobs(client)
    job = await api.create_job("nightly", [{"entrypoint": "typed.add", "kwargs": {"a": 1}}])
    assert_type(job, Job)
    assert_type(await api.list_jobs("FAILED"), list[Job])
    assert_type(await api.add_task_to_job(job, add, {"a": 2}), JobTask)
    assert_type(await api.retry_failed_tasks(await api.get_job(job)), int)
    assert_type(await api.cancel_job(job), Job)


async def use_jobs_awaiting(client: AsyncClient) -> None:
    api = AsyncJobs(client)
    job = await api.create_job("nightly", [{"entrypoint": "typed.add", "kwargs": {"a": 1}}])
    assert_type(job, Job)
    added = await api.add_task_to_job(job, add, {"a": 2})
    print(await api.get_job(job), await api.list_jobs(), await api.get_task(added))
    handle = await api.map(part, [1, 2, 3])
    assert_type(await api.collect(handle, into=total), JobTask)
    await api.remove_with_job("scratch.parquet")
    await api.wait_for_job(job)
    await api.retry_failed_tasks(job)
    await api.cancel_job(job)
    worker = await api.register_worker()
    await api.worker_heartbeat(worker)
    await api.deregister_worker(worker)
    print(await api.list_workers(), await api.health_check(), await api.metrics())
    assert_type(await api.add_task_to_current_job(add, {"a": 1}), str)


async def use_the_functions() -> None:
    job = await jobs.create_job("nightly", tasks=[{"entrypoint": add, "kwargs": {"a": 1}}])
    assert_type(job, Job)
    assert_type(await jobs.get_job(job), Job)
    assert_type(await jobs.map("typed.part", range(10)), MapHandle)
    assert_type(await jobs.wait_for_job(job, timeout=5), Job)
    assert_type(jobs.get_current_job_id(), str | None)
    assert_type(sync.create_job("nightly"), Job)
    assert_type(sync.map("typed.part", range(10)), MapHandle)
    assert_type(sync.wait_for_job(job), Job)
    await jobs.create_job(["nightly"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def tasks_are_generic(known: Task[[int], str]) -> str:
    return known(1)
