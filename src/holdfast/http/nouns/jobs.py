"""Jobs: sets of runs that end together and may grow while they run."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from holdfast import ops
from holdfast.documents.others import job_document
from holdfast.documents.restricted import added_run_document, created_job_document, restricted_job_document
from holdfast.documents.runs import run_document
from holdfast.domain.canonical import canonicalize
from holdfast.domain.errors import BadInput, Problem, refused
from holdfast.domain.ids import series
from holdfast.domain.records import Page
from holdfast.http import reading
from holdfast.http.answers import Answer, answer, page
from holdfast.http.call import Call, log_event
from holdfast.http.routes import Noun, routes
from holdfast.http.versions import versioned
from holdfast.jobs import specs, verbs
from holdfast.jobs.specs import new_job
from holdfast.ops.create import FIRST_TASKS
from holdfast.sql import keys
from holdfast.sql.keys import NewKey
from holdfast.sql.runs import EVERYTHING

MOST_TASKS = 1000


def create(call: Call) -> Answer:
    reading.query(call)
    key = reading.idempotency_key(call)
    asked = reading.checked_object(reading.json_body(call, around=3), ("name", "tasks", "description", "timeout"))
    tasks = [] if asked.get("tasks") is None else asked["tasks"]
    if not isinstance(tasks, list) or len(tasks) > MOST_TASKS:
        raise refused(Problem("/tasks", f"must be a list of at most {MOST_TASKS} tasks"))
    parsed = [_spec(call, task, f"/tasks/{index}") for index, task in enumerate(tasks)]
    new = new_job(call.caller, asked.get("name"), asked.get("description"), asked.get("timeout"))
    runs = specs.placed(parsed, series(new.id, FIRST_TASKS, len(parsed), first=True), new.id, {})
    if key is None:
        job = call.service.database.perform(partial(ops.create_job, new, runs))
    else:
        lifetime = timedelta(seconds=call.settings.key_seconds)
        taken = NewKey(call.principal.scope, key, new.id, keys.JOB, canonicalize(asked)[1], lifetime)
        job = call.service.database.perform(partial(ops.create_keyed_job, new, runs, taken))
        if job.id != new.id:
            document = job_document(job) if call.may_read else created_job_document(job)
            return answer(document, 200, {"Location": f"/jobs/{job.id}", "Idempotent-Replayed": "true"})
    call.service.database.ring({run.queue for run in runs})
    log_event(call, "job.created", {"job_id": job.id, "job": job.name, "tasks": job.total})
    return answer(job_document(job), 201, {"Location": f"/jobs/{job.id}"})


def _spec(call: Call, given_task: Any, pointer: str) -> specs.Spec:
    """Parse a task given in JSON: its entrypoint is a name, and times are text."""
    if isinstance(given_task, dict):
        if not isinstance(given_task.get("entrypoint", ""), str):
            raise refused(Problem(f"{pointer}/entrypoint", "must be the name of a task"))
        if given_task.get("run_after") is not None:
            given_task = given_task | {"run_after": reading.start(given_task["run_after"], f"{pointer}/run_after")}
    return specs.parse(call.settings, given_task, pointer)


def index(call: Call) -> Answer:
    given, limit = reading.page_query(call, "status", "name")
    before = given.get("cursor", EVERYTHING)
    found = call.service.database.perform(
        partial(ops.list_jobs, given.get("status"), before, limit + 1, given.get("name"))
    )
    cursor = found[limit - 1].id if len(found) > limit else None
    return page(Page(found[:limit], cursor), job_document, "/jobs", given)


def show(call: Call, job_id: str) -> Answer:
    id_ = reading.job_id(job_id)
    return versioned(call, id_, partial(ops.show_job, id_), job_document)


def tasks(call: Call, job_id: str) -> Answer:
    given, limit = reading.page_query(call)
    id_ = reading.job_id(job_id)
    options = {"cursor": given.get("cursor"), "limit": limit}
    found = call.service.database.execute(verbs.job_tasks, (id_,), options, call.caller)
    return page(found, run_document, f"/jobs/{id_}/tasks", given)


def add(call: Call, job_id: str) -> Answer:
    reading.query(call)
    reading.no_idempotency_key(call, "Set `key` in the body instead: a job has one task per key.")
    given_task = reading.json_body(call)
    _spec(call, given_task, "")
    if given_task.get("run_after") is not None:
        given_task = given_task | {"run_after": reading.start(given_task["run_after"], "/run_after")}
    options = {name: value for name, value in given_task.items() if name not in ("entrypoint", "kwargs")}
    try:
        arguments = (reading.job_id(job_id), given_task["entrypoint"], given_task.get("kwargs"))
        task = call.service.database.execute(verbs.add_task_to_job, arguments, options, call.caller)
    except BadInput as error:
        # There is only one task, so its pointers need not name it.
        problems = [Problem(p.pointer.removeprefix("/tasks/0"), p.detail) for p in error.problems]
        raise BadInput(str(error), problems) from None
    run = call.service.database.perform(partial(ops.get, task.id))
    document = run_document(run) if call.may_read else added_run_document(run, given_task.get("tags") or ())
    return answer(document, 201, {"Location": f"/runs/{run.id}"})


def retry(call: Call, job_id: str) -> Answer:
    reading.query(call)
    reading.optional_object(call, ())
    id_ = reading.job_id(job_id)
    reopened = call.service.database.execute(verbs.retry_failed_tasks, (id_,), {}, call.caller)
    call.service.hub.wake(id_)
    log_event(call, "job.reopened", {"job_id": id_, "tasks": reopened})
    job = call.service.database.execute(verbs.get_job, (id_,), {}, call.caller)
    document = job_document(job) if call.may_read else restricted_job_document(job)
    return answer(document | {"reopened": reopened})


NOUN = Noun(
    "jobs",
    "Jobs: named groups of runs with a common outcome.",
    routes(
        verbs,
        {
            verbs.create_job: create,
            verbs.list_jobs: index,
            verbs.get_job: show,
            verbs.job_tasks: tasks,
            verbs.add_task_to_job: add,
            verbs.retry_failed_tasks: retry,
        },
    ),
)
