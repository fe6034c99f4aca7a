"""holdfast jobs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from holdfast.cli import output, values
from holdfast.cli.output import Column, rendered, worker_names
from holdfast.cli.session import for_each, json_option, open_client
from holdfast.cli.watching import remark
from holdfast.domain.states import Status
from holdfast.domain.times import written

if TYPE_CHECKING:
    from holdfast.domain.records import Reason
    from holdfast.domain.values import RunRecord
    from holdfast.jobs import Job
    from holdfast.verbs.facades import Calls

STATUSES = (*Status, "COMPLETED")
SHOWN = 50
EVERY = 1_000_000_000
_ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


@click.group()
def jobs() -> None:
    """List, show, cancel and retry jobs."""


def _age(job: Job) -> str:
    return output.duration(max((datetime.now(UTC) - job.created_at).total_seconds(), 0))


JOBS: list[Column[Job]] = [
    Column("JOB", lambda job: job.id, is_id=True),
    Column("NAME", lambda job: job.name, wide=True),
    Column("STATUS", lambda job: job.status),
    Column("DONE", lambda job: f"{job.completed_tasks}/{job.total_tasks}", right=True),
    Column("FAILED", lambda job: job.failed_tasks, right=True),
    Column("AGE", _age, right=True),
]


@jobs.command("list")
@click.option("--status", type=click.Choice(STATUSES, case_sensitive=False), help="Only jobs with this status.")
@click.option("--name", help="Only jobs with this name.")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="Maximum number of items.")
@click.option("--cursor", metavar="JOB_ID", help="Continue after this job.")
@json_option
def list_jobs(limit: int, as_json: bool, **filters: str | None) -> None:
    """List jobs, newest first."""
    from holdfast.documents.others import job_document
    from holdfast.jobs import Jobs

    with open_client() as client:
        found = Jobs(client).list_jobs(limit=limit, **filters)
    more = found[-1].id if len(found) == limit else None
    output.page(JOBS, found, lambda job: job_document(job.record), more, as_json)


class Shown(NamedTuple):
    """A task of a job, and what it is waiting for, if that was read."""

    run: RunRecord
    reasons: Sequence[Reason] = ()


@jobs.command()
@click.argument("job_id")
@click.option("--all", "everything", is_flag=True, help=f"Show all tasks, not only the first {SHOWN}.")
@json_option
def show(job_id: str, everything: bool, as_json: bool) -> None:
    """Show a job, its tasks, and what each of them is waiting for."""
    from holdfast.documents.others import job_document
    from holdfast.jobs import Jobs

    with open_client() as client:
        api = Jobs(client)
        job = api.get_job(values.job_id(client, job_id))
        tasks = _with_reasons(client, api.load_tasks(job.id, None, EVERY if everything else SHOWN))
        names = {} if as_json else worker_names(client)
    if as_json:
        output.document(job_document(job.record) | {"tasks": [_document(task) for task in tasks]})
        return
    output.fields(_fields(job))
    if tasks:
        output.data("")
        output.table(_columns(tasks, names), tasks)
    if len(tasks) < job.total_tasks:
        output.note(f"showing {len(tasks)} of {job.total_tasks} tasks; use --all to show all of them")


def _with_reasons(client: Any, tasks: Sequence[RunRecord]) -> list[Shown]:
    """The tasks. Reasons for waiting are read only for the first ones, because each costs a call."""
    waiting = [task.id for task in tasks if task.status == "PENDING"][:SHOWN]
    reasons: dict[str, list[Reason]] = {id_: client.why(id_) for id_ in waiting}
    return [Shown(task, reasons.get(task.id, ())) for task in tasks]


def _document(task: Shown) -> dict[str, Any]:
    from holdfast.documents.runs import run_document

    reasons = [
        {"code": reason.code, "detail": rendered(reason.detail, {}, written)}
        for reason in task.reasons
        # A task that has started meanwhile is not waiting.
        if reason.code not in ("running", "stopping", "ended")
    ]
    return run_document(task.run) | {"key": task.run.child_key, "waits_for": reasons}


def _fields(job: Job) -> list[tuple[str, object]]:
    return [
        ("job", job.id),
        ("name", job.name),
        ("description", job.description),
        ("status", job.status),
        ("reason", job.reason),
        ("done", f"{job.completed_tasks} of {job.total_tasks}"),
        ("failed", job.failed_tasks or None),
        ("cancelled", job.cancelled_tasks or None),
        ("created", job.created_at),
        ("started", job.started_at),
        ("finished", job.finished_at),
        ("took", output.took(job.started_at, job.finished_at)),
        ("deadline", job.deadline_at),
        ("stop asked", job.record.cancel_requested_at),
        ("submitted by", job.record.submitted_by),
    ]


def _columns(tasks: Sequence[Shown], names: Mapping[str, str]) -> list[Column[Shown]]:
    keys = {task.run.id: task.run.child_key for task in tasks if task.run.child_key}

    def rendered_remark(task: Shown) -> str:
        return rendered(_ID.sub(lambda found: keys.get(found[0], found[0]), _remark(task)), names)

    return [
        Column("TASK", lambda task: task.run.id, is_id=True),
        Column("KEY", lambda task: task.run.child_key, wide=True),
        Column("ENTRYPOINT", lambda task: task.run.task),
        Column("STATUS", lambda task: task.run.status),
        Column("ATTEMPTS", lambda task: task.run.attempts.replace(" of ", "/"), right=True, spare=True),
        Column("REMARK", rendered_remark, wide=True),
    ]


def _remark(task: Shown) -> str:
    run = task.run
    if run.status == "PENDING":
        return "; ".join(reason.detail for reason in task.reasons) or f"waiting for {run.reason or 'a worker'}"
    return remark(run)


@jobs.command("cancel")
@click.argument("job_ids", nargs=-1, required=True, metavar="JOB_ID...")
@click.option("--reason", help="Stored with the job and its tasks.")
@json_option
def cancel_jobs(job_ids: tuple[str, ...], reason: str | None, as_json: bool) -> int:
    """Cancel jobs. Pending tasks end immediately; running tasks are asked to stop."""
    from holdfast.documents.others import job_document
    from holdfast.jobs import Jobs

    def call(client: Calls, job_id: str) -> None:
        job = Jobs(client).cancel_job(values.job_id(client, job_id), reason=reason)
        state = job.status if job.status.final else "asked to stop"
        output.document(job_document(job.record)) if as_json else output.data(f"{job.id}  {state}")

    return for_each(job_ids, call)


@jobs.command()
@click.argument("job_ids", nargs=-1, required=True, metavar="JOB_ID...")
@json_option
def retry(job_ids: tuple[str, ...], as_json: bool) -> int:
    """Retry the failed and cancelled tasks of jobs.

    Tasks that could not start because of them are retried too. Results of other tasks are kept.
    """
    from holdfast.documents.others import job_document
    from holdfast.jobs import Jobs

    def call(client: Calls, job_id: str) -> None:
        api, job_id = Jobs(client), values.job_id(client, job_id)
        reopened = api.retry_failed_tasks(job_id)
        job = api.get_job(job_id)
        if as_json:
            output.document(job_document(job.record) | {"reopened": reopened})
        else:
            output.data(f"{job.id}  {job.status}  {reopened} task{'s' * (reopened != 1)} reopened")

    return for_each(job_ids, call)
