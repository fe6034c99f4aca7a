"""What can be asked about jobs, each as a procedure. Every face of the API is a table of these, so none can drift."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from holdfast import ops
from holdfast.client.calls import person
from holdfast.domain.errors import BadInput, HoldfastError, JobNotFound, Problem, RunNotFound
from holdfast.domain.ids import derived_id, new_id, parse_id, placed_id, series
from holdfast.domain.jobs import JobRecord, NewJob
from holdfast.domain.states import Status
from holdfast.domain.values import KnownAs, NewRun, Submitted
from holdfast.jobs import specs
from holdfast.jobs.handles import Job, JobTask
from holdfast.jobs.here import Here
from holdfast.jobs.procedures import Procedure
from holdfast.ops.create import FIRST_TASKS
from holdfast.sql.runs import EVERYTHING

# The source's words for our statuses.
STATUSES = {status.value.lower(): status.value for status in Status} | {"completed": "SUCCEEDED"}


def create_job(
    here: Here,
    name: str,
    tasks: Iterable[Mapping[str, Any]] = (),
    description: str | None = None,
    timeout: float | timedelta | None = None,
) -> Procedure[Job]:
    """Make a job with its first tasks, all or none.

    A task is `{"entrypoint", "kwargs", "key"?, "depends_on"?, "critical"?, "max_retries"?, "timeout"?}`, where the
    entrypoint is a registered task or its name, and `depends_on` lists keys, or `{"task": key, "on": "success" |
    "failure" | "always"}`. A job that has not ended after `timeout` seconds is stopped and FAILED.
    """
    parsed = [specs.parse(here.settings, task, f"/tasks/{index}") for index, task in enumerate(tasks)]
    new = new_job(here, name, description, timeout)
    runs = specs.placed(parsed, series(new.id, FIRST_TASKS, len(parsed), first=True), new.id, {})
    record = yield partial(ops.create_job, new, runs)
    here.ring({run.queue for run in runs})
    return _job(here, record)


def new_job(here: Here, name: Any, description: Any, timeout: Any, id_: str | None = None) -> NewJob:
    """Check what is said about a job itself."""
    problems: list[Problem] = []
    seconds = specs.seconds_of(timeout, "/timeout", problems)
    if seconds is None:
        seconds = here.settings.job_timeout_seconds
    for field, text, most in (("name", name, 255), ("description", description, 10_000)):
        if (text is not None or field == "name") and (
            not isinstance(text, str) or not 1 <= len(text) <= most or "\0" in text
        ):
            problems.append(Problem(f"/{field}", f"must be 1 to {most} characters"))
    if problems:
        raise BadInput("; ".join(f"{p.pointer}: {p.detail}" for p in problems), problems)
    return NewJob(id_ or new_id(), name, description, timedelta(seconds=seconds) if seconds else None, person())


def get_job(here: Here, job: object) -> Procedure[Job]:
    """Read a job. Raises JobNotFound."""
    return _job(here, (yield partial(ops.show_job, job_id_of(job))))


def list_jobs(
    here: Here,
    status: str | None = None,
    *,
    name: str | None = None,
    cursor: str | None = None,
    limit: int | None = None,
) -> Procedure[list[Job]]:
    """Read jobs, newest first; `cursor` is the id of the last one of the page before."""
    wanted = status_of(status)
    before = EVERYTHING if cursor is None else job_id_of(cursor)
    most = limit if limit is not None else here.settings.max_page
    records: list[JobRecord] = yield partial(ops.list_jobs, wanted, before, most, name)
    return [_job(here, record) for record in records]


def cancel_job(here: Here, job: object, *, reason: str | None = None) -> Procedure[Job]:
    """Stop a job: its pending tasks end CANCELLED, its running ones are asked to stop, and nothing of it starts again.

    Returns once that is so. Raises JobEnded if the job ended otherwise.
    """
    job_id = job_id_of(job)
    record: JobRecord = yield partial(
        ops.stop_job, job_id, Status.CANCELLED, reason or f"the job was cancelled by {person()}"
    )
    yield from stopping(here, job_id, record.reason or "")
    return (yield from get_job(here, job_id))


def stopping(here: Here, job_id: str, reason: str) -> Procedure[None]:
    """Go on with the stop of a job until nothing of it can start."""
    done = False
    while not done:
        done, workers = yield partial(ops.stop_some, job_id, reason)
        if workers:
            here.ring([f"stop:{worker}" for worker in workers])


def retry_failed_tasks(here: Here, job: object, *, by: str | None = None) -> Procedure[int]:
    """Reopen the tasks of a job that failed or were stopped with it, those they kept from starting, and the job.

    What succeeded is not done again. Tells how many tasks were reopened.
    """
    job_id = job_id_of(job)
    reopened: int = yield partial(ops.retry_failed_tasks, job_id, by or person())
    here.ring((yield partial(ops.ready_queues, job_id)))
    return reopened


def add_task_to_job(
    here: Here, /, job_id: object, entrypoint: Any, kwargs: Mapping[str, Any] | None = None, **options: Any
) -> Procedure[JobTask]:
    """Add a task to a job that has not ended; `options` are those of a task in `create_job`. Raises JobEnded.

    A task whose key the job has already is found and returned; raises ChildDiffers if it has another entrypoint, other
    kwargs or other dependencies.
    """
    run = yield from _placed(here, job_id_of(job_id), entrypoint, kwargs, options)
    made = yield from _added(here, run)
    return JobTask(made.run, here.load_result)


def add_task_to_current_job(
    here: Here,
    /,
    entrypoint: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    job_id: str | None = None,
    when: str = "now",
    **options: Any,
) -> Procedure[str]:
    """Add a task to the job of the run that calls this; returns its id.

    `when="now"` adds it at once. `when="finish"` adds it in the transaction in which the calling run succeeds, or not
    at all. A run that is attempted again does not add it twice: it is known by its `key`, else by the order of calls,
    and raises ChildDiffers if that stands for something else already.
    """
    current = here.current_job_id()
    if job_id is not None and job_id != current:
        raise BadInput(f"job {job_id} is not the current one, {current}; use add_task_to_job", [Problem("/job_id", "")])
    if when not in ("now", "finish"):
        raise BadInput(f'when is "now" or "finish", not {when!r}', [Problem("/when", "unknown")])
    run = yield from _placed(here, current, entrypoint, kwargs, options)
    if when == "finish" and not (yield from _stored(run)):
        return (yield from _added_later(here, run))
    return (yield from _added(here, run)).run.id


def _added(here: Here, run: NewRun) -> Procedure[Submitted]:
    """Add a task at once, or return the existing one."""
    made: Submitted
    with here.asking(run.known_as) if run.known_as is not None else nullcontext():
        (made,) = yield partial(ops.add_tasks, [run], here.ref)
    if made.created:
        here.ring([run.queue])
    return made


def _stored(run: NewRun) -> Procedure[bool]:
    """Whether an earlier attempt or an earlier call has already added it."""
    if run.known_as is None:
        return True
    found: dict[str, str] = yield partial(ops.find_tasks, run.job_id or "", {"": [run.known_as]})
    return bool(found)


def _added_later(here: Here, run: NewRun) -> Procedure[str]:
    """Add a task when the calling run succeeds."""
    if here.run is None or run.job_id is None or run.known_as is None:
        raise HoldfastError("only a task that a worker is executing can defer adding tasks until it succeeds")
    place: int = yield partial(ops.next_place, run.job_id)
    name = f"{run.known_as.origin} {run.known_as.name}"
    new = replace(run, id=placed_id(run.job_id, place + len(here.run.additions), name))
    same = next((one for one in here.run.additions if one.known_as == run.known_as), None)
    with here.asking(run.known_as):
        if same is not None:
            ops.require_same(new, same)
            return same.id
    here.run.additions.append(new)
    return new.id


def _placed(
    here: Here, job_id: str, entrypoint: Any, kwargs: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> Procedure[NewRun]:
    """The run of a task that is added, under its id, with its dependencies told by id."""
    here.checked()
    spec = specs.parse(here.settings, {"entrypoint": entrypoint, "kwargs": kwargs, **options})
    names = [name for name, _ in spec.awaits if parse_id(name) is None]
    inside = here.run is not None and here.run.job_id == job_id
    wanted = [*names, spec.key] if spec.key is not None and not inside else names
    candidates = {name: here.names(job_id, name) for name in wanted}
    known: dict[str, str] = (yield partial(ops.find_tasks, job_id, candidates)) if wanted else {}
    if here.run is not None:
        known |= {one.child_key: one.id for one in here.run.additions if one.child_key is not None}
    name = here.name(job_id, spec.key)
    known_as: KnownAs | None = name
    id_ = derived_id(*name)
    if not inside and spec.key is not None and spec.key in known:
        # It was created with the job, or added before: it is compared by its id.
        id_, known_as = known[spec.key], None
    (run,) = specs.placed([spec], [id_], job_id, known)
    parent = here.run.id if inside and here.run is not None else None
    return replace(run, parent_id=parent, known_as=known_as)


def get_task(here: Here, task: object) -> Procedure[JobTask]:
    """Read a task. Raises RunNotFound."""
    task_id = parse_id(getattr(task, "id", task))
    if task_id is None:
        raise RunNotFound(f"{task!r} is not the id of a task")
    return JobTask((yield partial(ops.get_task, task_id)), here.load_result)


def job_id_of(value: object) -> str:
    found = parse_id(getattr(value, "id", value))
    if found is None:
        raise JobNotFound(f"{value!r} is not the id of a job")
    return found


def status_of(text: str | None) -> str | None:
    """A status, said in any case and in the source's words too."""
    if text is None:
        return None
    found = STATUSES.get(str(text).lower())
    if found is None:
        raise BadInput(f"{text!r} is no status; {', '.join(sorted(STATUSES))}", [Problem("/status", "unknown status")])
    return found


def _job(here: Here, record: JobRecord) -> Job:
    return Job(record, here.load_tasks, here.load_result)
