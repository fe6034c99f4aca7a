"""The verbs of jobs: each declares a call, its route, and its entry in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from holdfast import ops
from holdfast.documents.shapes import STATUS, TEXT, WHOLE, nullable
from holdfast.domain.errors import RunNotFound
from holdfast.domain.ids import parse_id, series
from holdfast.domain.jobs import JobRecord
from holdfast.domain.records import Page
from holdfast.domain.states import Status
from holdfast.domain.values import RunRecord
from holdfast.jobs import requests, specs
from holdfast.jobs.adding import add_now, new_task
from holdfast.jobs.specs import new_job, status_of
from holdfast.ops.create import FIRST_TASKS
from holdfast.sql.runs import EVERYTHING
from holdfast.verbs import forms
from holdfast.verbs.caller import Caller
from holdfast.verbs.forms import Form
from holdfast.verbs.openapi import (
    BODY_PROBLEMS,
    CURSOR,
    LIMIT,
    REPLAYED,
    RUN,
    WAITING,
    WITH_REASON,
    fields_of,
    in_query,
    json_request,
    key_for,
    link,
    located,
    page_of,
    problem,
    ref,
    says,
    short_text,
    version_of,
)
from holdfast.verbs.procedures import Procedure, Ring
from holdfast.verbs.subjects import job_id as job_id_of
from holdfast.verbs.verb import Endpoint, Event, MakeOp, verb

JOB = ref("Job")
JOB_LINKS = {
    name: link(target, about, job_id="$response.body#/job_id")
    for name, target, about in (
        ("job", "getJob", "The job itself."),
        ("tasks", "getJobTasks", "Its tasks."),
        ("add", "addTask", "Add a task to it."),
        ("cancel", "cancelJob", "Cancel it."),
        ("retry", "retryJob", "Retry its failed tasks."),
    )
}


@verb(
    Endpoint("POST /jobs", "runs:write", "createJob", "Create a job"),
    "Creates a job with its first tasks, all or none. `depends_on` names other tasks by key. "
    "A request with an `Idempotency-Key` creates one job, however often it is sent.",
    parameters=[key_for("request", "job")],
    requestBody=json_request(
        fields_of(
            {
                "name": short_text(255),
                "description": nullable(short_text(10_000)),
                "timeout": nullable({"type": "number", "minimum": 0.001, "exclusiveMaximum": 1e9}),
                "tasks": nullable({"type": "array", "items": ref("TaskRequest"), "maxItems": 1000}),
            },
            "name",
        ),
        example={
            "name": "nightly",
            "tasks": [
                {"entrypoint": "mock", "kwargs": {"seconds": 0.1}, "key": "load"},
                {"entrypoint": "mock", "kwargs": {"seconds": 0.1}, "depends_on": ["load"]},
            ],
        },
    ),
    answers={
        201: says("The job was created.", JOB, headers=located("job"), links=JOB_LINKS),
        200: says(
            "The job was created by an earlier request with the same key.",
            JOB,
            headers={**located("job"), **REPLAYED},
            links=JOB_LINKS,
        ),
        409: problem("key-reused"),
        **BODY_PROBLEMS,
        422: problem("bad-input", "refused-value"),
    },
    form=forms.JOB,
    request=requests.create_job_request,
)
def create_job(
    caller: Caller,
    /,
    name: str,
    tasks: Iterable[Mapping[str, Any]] = (),
    description: str | None = None,
    timeout: float | timedelta | None = None,
) -> Procedure[JobRecord]:
    """Create a job with its first tasks, all or none.

    A task is `{"entrypoint", "kwargs", "key"?, "depends_on"?, "critical"?, "max_retries"?, "timeout"?}`, where the
    entrypoint is a registered task or its name, and `depends_on` lists keys, or `{"task": key, "on": "success" |
    "failure" | "always"}`. A job that has not ended after `timeout` seconds is stopped and FAILED.
    """
    parsed = [specs.parse(caller.settings, task, f"/tasks/{index}") for index, task in enumerate(tasks)]
    new = new_job(caller, name, description, timeout)
    runs = specs.placed(parsed, series(new.id, FIRST_TASKS, len(parsed), first=True), new.id, {})
    record: JobRecord = yield partial(ops.create_job, new, runs)
    yield Ring(list({run.queue for run in runs}))
    return record


@verb(
    Endpoint("GET /jobs", "runs:read", "listJobs", "List jobs"),
    "Newest first, in pages.",
    parameters=[
        in_query("status", "Only jobs with this status.", STATUS.schema),
        in_query("name", "Only jobs with this name.", TEXT),
        CURSOR,
        LIMIT,
    ],
    answers=page_of(JOB),
    form=forms.JOBS,
    request=requests.list_jobs_request,
)
def list_jobs(
    caller: Caller,
    /,
    status: str | None = None,
    *,
    name: str | None = None,
    cursor: str | None = None,
    limit: int | None = None,
) -> MakeOp[list[JobRecord]]:
    """Read jobs, newest first; `cursor` is the id of the last job of the previous page."""
    before = EVERYTHING if cursor is None else job_id_of(cursor)
    most = limit if limit is not None else caller.settings.max_page
    return partial(ops.list_jobs, status_of(status), before, most, name)


@verb(
    Endpoint("GET /jobs/{job_id}", "runs:read", "getJob", "Read a job"),
    "With `wait`, responds when the job has ended or the time has passed. With `If-None-Match`, also responds as "
    "soon as the job changes, or with 304 if it does not.",
    parameters=WAITING,
    answers=version_of("The job.", JOB),
    form=forms.JOB,
)
def get_job(caller: Caller, /, job: object) -> MakeOp[JobRecord]:
    """Read a job. Raises JobNotFound."""
    return partial(ops.show_job, job_id_of(job))


@verb(
    Endpoint("GET /jobs/{job_id}/tasks", "runs:read", "getJobTasks", "List the tasks of a job"),
    "Each is a run; those created with the job come first.",
    parameters=[CURSOR, LIMIT],
    answers=page_of(RUN),
    form=forms.RUNS,
    request=requests.job_tasks_request,
)
def job_tasks(
    caller: Caller, /, job: object, *, cursor: str | None = None, limit: int | None = None
) -> Procedure[Page[RunRecord]]:
    """Return a page of the tasks of a job, those created with it first. Raises JobNotFound."""
    job_id, most = job_id_of(job), caller.settings.page if limit is None else limit
    found: list[RunRecord] = yield partial(ops.list_tasks, job_id, cursor, most + 1)
    if not found:
        yield partial(ops.get_job, job_id)
    return Page(found[:most], found[most - 1].id if len(found) > most else None)


@verb(
    Endpoint("POST /jobs/{job_id}/tasks", "runs:write", "addTask", "Add a task to a job"),
    "If the job already has a task with this key, that task is returned, unless it differs from this one.",
    requestBody=json_request(ref("TaskRequest"), example={"entrypoint": "mock", "kwargs": {"seconds": 0.1}}),
    answers={
        201: says("The task was added or already existed.", RUN, headers=located("run")),
        409: problem("job-ended", "task-differs"),
        **BODY_PROBLEMS,
        422: problem("bad-input", "refused-value"),
    },
    form=forms.RUN,
    request=requests.add_task_request,
    repeatable=False,
)
def add_task_to_job(
    caller: Caller, /, job_id: object, entrypoint: Any, kwargs: Mapping[str, Any] | None = None, **options: Any
) -> Procedure[RunRecord]:
    """Add a task to a job that has not ended; `options` are those of a task in `create_job`. Raises JobEnded.

    If the job already has a task with this key, that task is returned; raises ChildDiffers if its entrypoint, kwargs or
    dependencies differ.
    """
    run = yield from new_task(caller, job_id_of(job_id), entrypoint, kwargs, options)
    made = yield from add_now(caller, run)
    return made.run


@verb(
    Endpoint("POST /jobs/{job_id}/cancel", "runs:write", "cancelJob", "Cancel a job"),
    "Pending tasks end immediately, running tasks are asked to stop, and no task starts after that.",
    requestBody=WITH_REASON,
    answers={
        200: says("The job is cancelled.", JOB, links=JOB_LINKS),
        202: says("Some of its tasks have not stopped yet.", JOB, links=JOB_LINKS),
        409: problem("job-ended"),
        422: problem("bad-input"),
    },
    form=forms.JOB,
    status=lambda job: 200 if job.status.final else 202,
    event=lambda job: Event("job.cancelled", {"job_id": job.id, "job": job.name, "reason": job.reason}),
)
def cancel_job(caller: Caller, /, job: object, *, reason: str | None = None) -> Procedure[JobRecord]:
    """Stop a job: its pending tasks end CANCELLED, its running ones are asked to stop, and no others start.

    Returns once that is done. Raises JobEnded if the job has ended with another status.
    """
    job_id = job_id_of(job)
    why = reason or f"the job was cancelled by {caller.name}"
    stopped: JobRecord = yield partial(ops.stop_job, job_id, Status.CANCELLED, why)
    done = False
    while not done:
        done, workers = yield partial(ops.stop_some, job_id, stopped.reason or "")
        if workers:
            yield Ring([f"stop:{worker}" for worker in workers])
    record: JobRecord = yield partial(ops.show_job, job_id)
    return record


@verb(
    Endpoint("POST /jobs/{job_id}/retry", "runs:write", "retryJob", "Retry the failed tasks of a job"),
    "Reopens the job, its tasks that failed or were cancelled, and those that could not start because of them. "
    "Tasks that succeeded do not run again.",
    answers={
        200: says("`reopened` is the number of reopened tasks.", {"allOf": [JOB], "properties": {"reopened": WHOLE}}),
        409: problem("job-ended"),
        422: problem("bad-input"),
    },
    form=Form(lambda reopened: {"reopened": reopened}, lambda reply: int(reply.json()["reopened"])),
    repeatable=False,
)
def retry_failed_tasks(caller: Caller, /, job: object, *, by: str | None = None) -> Procedure[int]:
    """Reopen a job, its tasks that failed or were cancelled, and those that could not start because of them.

    Tasks that succeeded are not run again. Returns how many tasks were reopened.
    """
    job_id = job_id_of(job)
    reopened: int = yield partial(ops.retry_failed_tasks, job_id, by or caller.name)
    queues: list[str] = yield partial(ops.ready_queues, job_id)
    yield Ring(list(queues))
    return reopened


@verb()
def get_task(caller: Caller, /, task: object) -> MakeOp[RunRecord]:
    """Read a task. Raises RunNotFound."""
    task_id = parse_id(getattr(task, "id", task))
    if task_id is None:
        raise RunNotFound(f"{task!r} is not the id of a task")
    return partial(ops.get_task, task_id)
