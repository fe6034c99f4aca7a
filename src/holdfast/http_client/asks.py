"""What can be asked of the API, each as a value: the request, and how its answer is read."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Generic, TypedDict, TypeVar, Unpack
from urllib.parse import quote

import orjson

from holdfast.client.calls import AnyTask, run_id
from holdfast.client.requests import Submission, SubmitOptions
from holdfast.documents import reading as records
from holdfast.domain.canonical import canonicalize
from holdfast.domain.errors import BadInput, HoldfastError, Problem
from holdfast.domain.ids import new_id
from holdfast.domain.records import AttemptRecord, EventRecord, LogRecord, Page, QueueRecord, Reason, WorkerRecord
from holdfast.domain.tasks import Task
from holdfast.domain.times import START, is_start
from holdfast.domain.values import RunRecord, Submitted
from holdfast.http_client.patience import asked_for

T = TypeVar("T")

MAX_WAIT = 20.0


@dataclass(frozen=True)
class Reply:
    """What came back: enough to read it."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return orjson.loads(self.body)


@dataclass(frozen=True)
class Ask(Generic[T]):
    """A request. A `repeatable` one may be sent again when nobody knows whether it arrived."""

    method: str
    path: str
    read: Callable[[Reply], T]
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    repeatable: bool = True


def _run(reply: Reply) -> RunRecord:
    return records.run(reply.json())


def _submitted(reply: Reply) -> Submitted:
    return Submitted(_run(reply), reply.status == 201)


def _name(task: AnyTask) -> str:
    name = task if isinstance(task, str) else getattr(task, "name", None)
    if not isinstance(name, str):
        raise BadInput(
            f"{task!r} is not a task; name one, or decorate it with @task", [Problem("/model", "not a task")]
        )
    return name


def _document(task: AnyTask, parameters: Mapping[str, Any] | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The request for a run. An answer may be lost on the way, so each is known by a key; unless dedupe decides."""
    given = {name: value for name, value in options.items() if value is not None}
    if "key" not in given and given.get("dedupe", "off") == "off":
        given["key"] = f"auto-{new_id()}"
    if "run_after" in given:
        given["run_after"] = _instant(given["run_after"])
    if isinstance(given.get("dedupe"), timedelta):
        given["dedupe"] = given["dedupe"].total_seconds()
    if "depends_on" in given:
        given["depends_on"] = [_dependency(one) for one in given["depends_on"]]
    if "tags" in given:
        given["tags"] = list(given["tags"])
    # The annotations of a task that is registered here say how to write values that are not JSON.
    sent = task.encode(parameters or {}) if isinstance(task, Task) else dict(parameters or {})
    return {"model": _name(task), "parameters": sent, **given}


def _instant(value: object) -> str:
    if not is_start(value):
        raise BadInput(f"/run_after: {START}", [Problem("/run_after", START)])
    at: Any = datetime.now(UTC) + value if isinstance(value, timedelta) else value
    return str(at.isoformat())


def _dependency(one: Any) -> Any:
    if isinstance(one, Mapping):
        return {name: getattr(value, "id", value) for name, value in one.items()}
    return getattr(one, "id", one)


def _written(document: Mapping[str, Any]) -> bytes:
    """As JSON, exactly: what cannot be kept is refused here already."""
    return canonicalize(document)[0].encode()


def submit(
    task: AnyTask, parameters: Mapping[str, Any] | None = None, **options: Unpack[SubmitOptions]
) -> Ask[Submitted]:
    """Make a run, or find the one that the same key made before."""
    document = _document(task, parameters, options)
    key = document.pop("key", None)
    headers = {} if key is None else {"Idempotency-Key": _quoted(key)}
    return Ask("POST", "/runs", _submitted, headers=headers, body=_written(document))


def _quoted(key: Any) -> str:
    if not isinstance(key, str) or not key.isascii() or not key.isprintable() or not 1 <= len(key) <= 255 or " " in key:
        raise BadInput("a key has 1 to 255 visible ASCII characters", [Problem("/key", "not a key")])
    return key


def submit_many(
    task: AnyTask | Iterable[Submission],
    many: Iterable[Mapping[str, Any]] | None = None,
    **options: Unpack[SubmitOptions],
) -> Ask[list[Submitted]]:
    """Make many runs, all or none: of one task with a list of parameters, or of a list of Submission values."""
    if many is not None:
        asked = [_document(task, parameters, options) for parameters in many]  # type: ignore[arg-type]
    elif isinstance(task, Iterable) and not isinstance(task, str):
        asked = [_document(one.task, one.parameters, one.options) for one in task]
    else:
        raise BadInput("submit_many takes a task and a list of parameters, or a list of Submission values")

    def read(reply: Reply) -> list[Submitted]:
        return [Submitted(records.run(item["run"]), item["created"]) for item in reply.json()["items"]]

    return Ask("POST", "/batches", read, body=_written({"runs": asked}))


def get(run: object, wait: float = 0.0) -> Ask[RunRecord]:
    """Read one run; with `wait`, once it has ended or these seconds are over."""
    query = {"wait": f"{wait:.3f}"} if wait > 0 else {}
    return Ask("GET", f"/runs/{run_id(run)}", _run, query)


def awaited(run: object, wait: float) -> Ask[tuple[RunRecord, float | None]]:
    """As `get`, and the seconds after which the server would be asked again, if it says so."""
    plain = get(run, wait)
    return Ask(
        plain.method, plain.path, lambda reply: (_run(reply), asked_for(reply.headers.get("retry-after"))), plain.query
    )


class RunFilters(TypedDict, total=False):
    """Which runs are listed, and how many."""

    status: str | None
    model: str | None
    queue: str | None
    tag: str | None
    job_id: str | None
    cursor: str | None
    limit: int | None


def list_runs(**filters: Unpack[RunFilters]) -> Ask[Page[RunRecord]]:
    """Read runs, newest first; go on with `cursor=page.next_cursor`, which is None at the end of the list.

    A page may have fewer than `limit` runs although there are more.
    """
    query = {name: str(value) for name, value in filters.items() if value is not None}

    def read(reply: Reply) -> Page[RunRecord]:
        said = reply.json()
        return Page(map(records.run, said["items"]), said["next_cursor"])

    return Ask("GET", "/runs", read, query)


def result(run: object) -> Ask[Any]:
    """What the task returned. Raises RunNotFinished, RunFailed or RunCancelled if there is no result."""

    def read(reply: Reply) -> Any:
        told = reply.headers.get("repr-digest", "")
        if told.startswith("sha-256=:") and b64decode(told[9:-1]) != sha256(reply.body).digest():
            raise HoldfastError("the result was damaged on its way here: its SHA-256 differs; ask again")
        return reply.json()

    return Ask("GET", f"/runs/{run_id(run)}/result", read)


def cancel(run: object, *, reason: str | None = None) -> Ask[RunRecord]:
    """Cancel a run: at once if it is pending, else it is asked to stop."""
    body = None if reason is None else _written({"reason": reason})
    return Ask("POST", f"/runs/{run_id(run)}/cancel", _run, body=body)


def retry(run: object, *, by: str | None = None) -> Ask[RunRecord]:
    """Reopen a FAILED or CANCELLED run. The server writes down whose token asked, whatever `by` says."""
    return Ask("POST", f"/runs/{run_id(run)}/retry", _run, repeatable=False)


def events(run: object, after: int = 0) -> Ask[list[EventRecord]]:
    """What happened to a run, in order."""
    return _items(f"/runs/{run_id(run)}/events", records.event, after=str(after))


def logs(run: object, after: int = 0) -> Ask[list[LogRecord]]:
    """What a run wrote, at most a thousand lines at once."""
    return _items(f"/runs/{run_id(run)}/logs", records.log_line, after=str(after))


def attempts(run: object) -> Ask[list[AttemptRecord]]:
    """The attempts of a run."""
    return _items(f"/runs/{run_id(run)}/attempts", records.attempt)


def why(run: object) -> Ask[list[Reason]]:
    """The exact thing that a run waits for."""
    return _items(f"/runs/{run_id(run)}/why", records.reason)


def workers() -> Ask[list[WorkerRecord]]:
    """Workers that live, and those that stopped in the last day."""
    return _items("/workers", records.worker)


def drain_worker(worker: str) -> Ask[bool]:
    """Ask a worker to take nothing more. Raises NotFound if no such worker lives."""
    return Ask("POST", f"/workers/{quote(worker, safe='')}/drain", lambda reply: True)


def queues() -> Ask[list[QueueRecord]]:
    """Queues with live runs or a pause."""
    return _items("/queues", records.queue)


def pause_queue(name: str, *, by: str | None = None, reason: str | None = None) -> Ask[None]:
    """Let no run of this queue start. Running ones go on. The server writes down whose token asked."""
    body = None if reason is None else _written({"reason": reason})
    return Ask("POST", f"/queues/{quote(name, safe='')}/pause", lambda reply: None, body=body)


def resume_queue(name: str) -> Ask[None]:
    """Let the runs of this queue start again."""
    return Ask("POST", f"/queues/{quote(name, safe='')}/resume", lambda reply: None)


def summary() -> Ask[dict[str, Any]]:
    """How many runs each model has had, by status."""
    return Ask("GET", "/summary", lambda reply: dict(reply.json()))


def _items(path: str, read: Callable[[dict[str, Any]], T], **query: str) -> Ask[list[T]]:
    return Ask("GET", path, lambda reply: [read(item) for item in reply.json()["items"]], query)
