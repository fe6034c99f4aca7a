"""Jobs: sets of runs that end together and may grow while they run."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode

from holdfast import ops
from holdfast.documents.others import job_document
from holdfast.documents.runs import run_document
from holdfast.domain.canonical import canonicalize
from holdfast.domain.errors import BadInput, JobNotFound, Problem
from holdfast.domain.ids import parse_id, series
from holdfast.domain.jobs import JobRecord
from holdfast.domain.states import Status
from holdfast.http import reading
from holdfast.http.answers import Answer, answer, items
from holdfast.http.call import Call
from holdfast.http.nouns import jobs_operations as operations
from holdfast.http.routes import Noun, Route
from holdfast.http.showing import added_run, changed_job, made_job
from holdfast.http.telling import tell
from holdfast.http.versions import versioned
from holdfast.jobs import specs
from holdfast.jobs.calls import new_job
from holdfast.jobs.faces import Jobs
from holdfast.ops.create import FIRST_TASKS
from holdfast.sql import keys
from holdfast.sql.keys import NewKey
from holdfast.sql.runs import EVERYTHING

MOST_TASKS = 1000


def create(call: Call) -> Answer:
    here = call.service
    reading.query(call)
    key = reading.idempotency_key(call)
    asked = reading.checked_object(reading.json_body(call, around=3), ("name", "tasks", "description", "timeout"))
    tasks = [] if asked.get("tasks") is None else asked["tasks"]
    if not isinstance(tasks, list) or len(tasks) > MOST_TASKS:
        raise reading.refused([Problem("/tasks", f"must be a list of at most {MOST_TASKS} tasks")])
    parsed = [_spec(call, task, f"/tasks/{index}") for index, task in enumerate(tasks)]
    new = new_job(Jobs(here.database).here(), asked.get("name"), asked.get("description"), asked.get("timeout"))
    runs = specs.placed(parsed, series(new.id, FIRST_TASKS, len(parsed), first=True), new.id, {})
    new = replace(new, submitted_by=call.principal.name)
    if key is None:
        job = here.database.perform(partial(ops.create_job, new, runs))
    else:
        taken = _new_key(call, key, new.id, asked)
        job = here.database.perform(partial(ops.create_keyed_job, new, runs, taken))
        if job.id != new.id:
            return answer(made_job(call, job), 200, {"Location": f"/jobs/{job.id}", "Idempotent-Replayed": "true"})
    here.database.ring({run.queue for run in runs})
    tell("job.created", call, job_id=job.id, job=job.name, tasks=job.total)
    return answer(job_document(job), 201, {"Location": f"/jobs/{job.id}"})


def _new_key(call: Call, key: str, job_id: str, asked: dict[str, Any]) -> NewKey:
    payload_hash = canonicalize(asked)[1]
    return NewKey(
        call.principal.scope, key, job_id, keys.JOB, payload_hash, timedelta(seconds=call.settings.key_seconds)
    )


def _spec(call: Call, told: Any, pointer: str) -> specs.Spec:
    """A task as JSON says it: an entrypoint is a name, a time is text."""
    if isinstance(told, dict):
        if not isinstance(told.get("entrypoint", ""), str):
            raise reading.refused([Problem(f"{pointer}/entrypoint", "must be the name of a task")])
        if told.get("run_after") is not None:
            told = told | {"run_after": reading.instant(told["run_after"], f"{pointer}/run_after")}
    return specs.parse(call.settings, told, pointer)


def index(call: Call) -> Answer:
    given = reading.query(call, "status", "name", "cursor", "limit")
    limit = reading.whole(given, "limit", call.settings.page, 1, call.settings.max_page)
    status, before = given.get("status"), given.get("cursor")
    problems = []
    if status is not None and status not in tuple(Status):
        problems.append(Problem("/status", f"must be one of {', '.join(Status)}"))
    if before is not None and parse_id(before) is None:
        problems.append(Problem("/cursor", "is not one that this service gave out"))
    if problems:
        raise reading.refused(problems)
    list_jobs = partial(ops.list_jobs, status, before or EVERYTHING, limit + 1, given.get("name"))
    found = call.service.database.perform(list_jobs)
    cursor = found[limit - 1].id if len(found) > limit else None
    page = items([job_document(job) for job in found[:limit]], next_cursor=cursor)
    if cursor is not None:
        page.headers["Link"] = f'</jobs?{urlencode({**given, "cursor": cursor})}>; rel="next"'
    return page


def show(call: Call, job_id: str) -> Answer:
    id_ = _id(job_id)

    def read() -> JobRecord:
        return call.service.database.perform(partial(ops.show_job, id_))

    return versioned(call, id_, read, job_document, lambda job: job.status.final)


def tasks(call: Call, job_id: str) -> Answer:
    given = reading.query(call, "cursor", "limit")
    limit = reading.whole(given, "limit", call.settings.page, 1, call.settings.max_page)
    after = given.get("cursor")
    if after is not None and parse_id(after) is None:
        raise reading.refused([Problem("/cursor", "is not one that this service gave out")])
    id_ = _id(job_id)
    call.service.database.perform(partial(ops.get_job, id_))
    found = call.service.database.perform(partial(ops.list_tasks, id_, after, limit + 1))
    cursor = found[limit - 1].id if len(found) > limit else None
    page = items([run_document(run) for run in found[:limit]], next_cursor=cursor)
    if cursor is not None:
        page.headers["Link"] = f'</jobs/{id_}/tasks?{urlencode({**given, "cursor": cursor})}>; rel="next"'
    return page


def add(call: Call, job_id: str) -> Answer:
    here = call.service
    reading.query(call)
    reading.no_idempotency_key(call, "Give the task a key in the body: a job has one task of each key.")
    told = reading.json_body(call)
    _spec(call, told, "")
    if told.get("run_after") is not None:
        told = told | {"run_after": reading.instant(told["run_after"], "/run_after")}
    options = {name: value for name, value in told.items() if name not in ("entrypoint", "kwargs")}
    try:
        task = Jobs(here.database).add_task_to_job(_id(job_id), told["entrypoint"], told.get("kwargs"), **options)
    except BadInput as error:
        # There is one task only, so its pointers need not say which.
        problems = [Problem(p.pointer.removeprefix("/tasks/0"), p.detail) for p in error.problems]
        raise BadInput(str(error), problems) from None
    run = here.database.perform(partial(ops.get, task.id))
    return answer(added_run(call, run, told.get("tags") or ()), 201, {"Location": f"/runs/{run.id}"})


def cancel(call: Call, job_id: str) -> Answer:
    reading.query(call)
    said = reading.optional_object(call, ("reason",))
    reason = reading.short_text(said.get("reason"), "/reason") or f"the job was cancelled by {call.principal.name}"
    job = Jobs(call.service.database).cancel_job(_id(job_id), reason=reason)
    call.service.hub.wake(job.id)
    tell("job.cancelled", call, job_id=job.id, job=job.name, reason=reason)
    return answer(changed_job(call, job.record), 200 if job.status.final else 202)


def retry(call: Call, job_id: str) -> Answer:
    reading.query(call)
    reading.optional_object(call, ())
    jobs, id_ = Jobs(call.service.database), _id(job_id)
    reopened = jobs.retry_failed_tasks(id_, by=call.principal.name)
    call.service.hub.wake(id_)
    tell("job.reopened", call, job_id=id_, tasks=reopened)
    return answer(changed_job(call, jobs.get_job(id_).record) | {"reopened": reopened})


def _id(text: str) -> str:
    found = parse_id(text)
    if found is None:
        raise JobNotFound("no job has this id: an id is a UUID")
    return found


NOUN = Noun(
    "jobs",
    "Jobs: named groups of runs with a common outcome.",
    [
        Route("POST", "/jobs", create, "runs:write", operations.CREATE),
        Route("GET", "/jobs", index, "runs:read", operations.LIST),
        Route("GET", "/jobs/{job_id}", show, "runs:read", operations.SHOW),
        Route("GET", "/jobs/{job_id}/tasks", tasks, "runs:read", operations.TASKS),
        Route("POST", "/jobs/{job_id}/tasks", add, "runs:write", operations.ADD),
        Route("POST", "/jobs/{job_id}/cancel", cancel, "runs:write", operations.CANCEL),
        Route("POST", "/jobs/{job_id}/retry", retry, "runs:write", operations.RETRY),
    ],
)
