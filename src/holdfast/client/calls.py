"""What a client can ask, each as an operation. Both clients are tables of these, so neither can drift.

What makes runs is prepared once, ids and all, and returns what makes the operation: a client whose connection broke on
the way asks again for the very same runs.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Unpack

from holdfast import ops
from holdfast.client.requests import (
    NOBODY,
    Asker,
    Batches,
    Submission,
    SubmitOptions,
    prepare,
    prepare_batches,
    prepare_one,
)
from holdfast.domain.errors import BadInput, NotFound, Problem, RunNotFound
from holdfast.domain.ids import new_ids, parse_id
from holdfast.domain.records import AttemptRecord, EventRecord, Page, QueueRecord, Reason, ResultRecord, WorkerRecord
from holdfast.domain.tasks import Task
from holdfast.domain.values import NewRun, Payload, RunRecord, Submitted
from holdfast.runtime.settings import Settings
from holdfast.sql import queues as queues_sql
from holdfast.sql import runs as runs_sql
from holdfast.sql import tallies as tallies_sql
from holdfast.sql import workers as workers_sql
from holdfast.sql.statement import Op

AnyTask = Task | str | Callable[..., Any]
STATUSES = ("PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED")


def run_id(value: object) -> str:
    found = parse_id(getattr(value, "id", value))
    if found is None:
        raise RunNotFound(f"{value!r} is not the id of a run")
    return found


def person() -> str:
    """Who acts, as far as this process knows."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def submit(
    settings: Settings,
    /,
    task: AnyTask,
    parameters: Mapping[str, Any] | None = None,
    *,
    asker: Asker = NOBODY,
    **options: Unpack[SubmitOptions],
) -> Callable[[], Op[Submitted]]:
    """Make a run, or find the one that the same key or payload made before."""
    return Submitting(*prepare_one(settings, task, parameters, asker=asker, **options))


def submit_many(
    settings: Settings,
    /,
    task: AnyTask | Iterable[Submission],
    many: Iterable[Mapping[str, Any]] | None = None,
    *,
    asker: Asker = NOBODY,
    **options: Unpack[SubmitOptions],
) -> Callable[[], Op[list[Submitted]]]:
    """Make many runs: of one task with a list of parameters, or of a list of Submission values. All or none."""
    if many is not None and (isinstance(task, str) or not isinstance(task, Iterable)):
        return _submit_alike(settings, task, list(many), asker, options)
    if many is None and isinstance(task, Iterable) and not isinstance(task, str):
        asked = list(task)
    else:
        raise BadInput("submit_many takes a task and a list of parameters, or a list of Submission values")
    made = [
        prepare(settings, one.task, one.parameters, asker=asker, id=id_, **one.options)
        for one, id_ in zip(asked, new_ids(len(asked)), strict=True)
    ]
    return partial(ops.submit_many, made)


class Submitting:
    """Makes the operation that submits a run, as often as it takes.

    Only when it is performed again may it find what it made before: the id was made here, for it alone.
    """

    def __init__(self, head: NewRun, payload: Payload) -> None:
        self.head = head
        self.payload = payload
        self.rings = False
        """Whether the statement rings for the run's queue."""
        self._again = False

    def ring(self) -> None:
        self.rings = True

    def __call__(self) -> Op[Submitted]:
        again, self._again = self._again, True
        return ops.submit_one(self.head, self.payload, ring=self.rings, again=again)


def mute(make_op: object) -> bool:
    """Remove the notification from the statement of a submit; False if it had none."""
    if not isinstance(make_op, Submitting) or not make_op.rings:
        return False
    make_op.rings = False
    return True


class SubmittingMany:
    """The same for runs that share everything but their payload, by the batch."""

    def __init__(self, head: NewRun, batches: Batches) -> None:
        self._head = head
        self._batches: Batches | list[list[Payload]] = batches
        self._again = False

    def at_once(self) -> None:
        """Check all of them first and write them with one statement, for a transaction that is somebody else's."""
        self._batches = [[payload for batch in self._batches for payload in batch]]

    def __call__(self) -> Op[list[Submitted]]:
        again, self._again = self._again, True
        return ops.submit_batches(self._head, self._batches, together=len(self._batches) > 1, again=again)


def _submit_alike(
    settings: Settings, task: AnyTask, many: Sequence[Any], asker: Asker, options: Mapping[str, Any]
) -> Callable[[], Op[list[Submitted]]]:
    if not many:
        return partial(ops.submit_many, ())
    head, batches = prepare_batches(settings, task, many, asker=asker, **options)
    if head.key is None and head.dedupe == "off" and not head.depends_on:
        return SubmittingMany(head, batches)
    return partial(ops.submit_many, [head.with_payload(payload) for batch in batches for payload in batch])


def get(settings: Settings, /, run: object) -> Op[RunRecord]:
    """Read one run."""
    return ops.get(run_id(run))


def list_runs(
    settings: Settings,
    /,
    *,
    status: str | None = None,
    model: str | None = None,
    queue: str | None = None,
    tag: str | None = None,
    job_id: str | None = None,
    cursor: str | None = None,
    limit: int | None = None,
) -> Op[Page[RunRecord]]:
    """Return a page of runs, newest first. Pass `cursor=page.next_cursor` for the next; it is None on the last page.

    A page may have fewer than `limit` runs although there are more. It is empty only if there are none.
    """
    limit = settings.page if limit is None else limit
    problems = []
    if status is not None and status not in STATUSES:
        problems.append(Problem("/status", f"must be one of {', '.join(STATUSES)}"))
    if not 1 <= limit <= settings.max_page:
        problems.append(Problem("/limit", f"must be from 1 to {settings.max_page}"))
    before = runs_sql.EVERYTHING if cursor is None else parse_id(cursor)
    if before is None:
        problems.append(Problem("/cursor", "is not one that this service gave out"))
    job = parse_id(job_id) if job_id is not None else None
    if job_id is not None and job is None:
        problems.append(Problem("/job_id", "is not the id of a job"))
    if problems or before is None:
        raise BadInput("; ".join(f"{p.pointer}: {p.detail}" for p in problems), problems)
    return _next_page(
        {"status": status, "task": model, "queue": queue, "tag": tag, "job_id": job, "limit": limit}, before
    )


def _next_page(filters: Mapping[str, Any], before: str) -> Op[Page[RunRecord]]:
    """Return the next page that is not empty, or the last page."""
    page = yield from ops.list_runs(**filters, before=before)
    while not page and page.next_cursor is not None:
        page = yield from ops.list_runs(**filters, before=page.next_cursor)
    return page


def result(settings: Settings, /, run: object) -> Op[ResultRecord]:
    """Where the result of a run is."""
    return ops.result(run_id(run))


def cancel(settings: Settings, /, run: object, *, reason: str | None = None) -> Op[RunRecord]:
    """Cancel a run: at once if it is pending, else it is asked to stop."""
    return ops.cancel(run_id(run), reason or f"cancelled by {person()}")


def retry(settings: Settings, /, run: object, *, by: str | None = None) -> Op[RunRecord]:
    """Reopen a FAILED or CANCELLED run."""
    return ops.retry(run_id(run), by or person())


def events(settings: Settings, /, run: object, after: int = 0) -> Op[list[EventRecord]]:
    """What happened to a run, in order."""
    return ops.events(run_id(run), after)


def attempts(settings: Settings, /, run: object) -> Op[list[AttemptRecord]]:
    """The attempts of a run."""
    return ops.attempts(run_id(run))


def why(settings: Settings, /, run: object) -> Op[list[Reason]]:
    """The exact thing that a run waits for."""
    return ops.explain(run_id(run))


def workers(settings: Settings, /) -> Op[list[WorkerRecord]]:
    """Workers that live, and those that stopped in the last day."""
    return (yield from workers_sql.listing())


def drain_worker(settings: Settings, /, worker: str) -> Op[bool]:
    """Ask a worker to take nothing more; False if no such worker lives."""
    found = parse_id(getattr(worker, "id", worker))
    if found is None:
        raise NotFound(f"{worker!r} is not the id of a worker")
    return bool((yield from workers_sql.drain(found)))


def queues(settings: Settings, /) -> Op[list[QueueRecord]]:
    """Queues with live runs or a pause."""
    return (yield from queues_sql.listing())


def pause_queue(settings: Settings, /, name: str, *, by: str | None = None, reason: str | None = None) -> Op[None]:
    """Let no run of this queue start. Running ones go on."""
    yield from queues_sql.pause(name, by or person(), reason)


def resume_queue(settings: Settings, /, name: str) -> Op[None]:
    """Let the runs of this queue start again."""
    yield from queues_sql.resume(name)


def totals(settings: Settings, /) -> Op[dict[tallies_sql.Tally, tuple[int, float]]]:
    """Every counter by (task, kind, bucket)."""
    return (yield from tallies_sql.totals())
