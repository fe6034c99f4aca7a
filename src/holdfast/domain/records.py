"""Records that the clients return: attempts, events, queues, workers, tokens and others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

from holdfast.domain.reasons import describe
from holdfast.domain.values import RunRecord

T = TypeVar("T")


class AttemptRecord(NamedTuple):
    """One attempt, live or ended.

    `claimed_by` is the worker that claimed the run, if another process took over its lease; `log_ref` and the fields
    that begin with `ray_` say where on a cluster it is or was executed.
    """

    number: int
    status: str
    outcome: str | None
    worker_id: str
    executor: str | None
    claimed_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None
    reason: str | None
    error: dict[str, Any] | None
    progress: dict[str, Any] | None
    result_ref: str | None
    heartbeat_at: datetime | None = None
    claimed_by: str | None = None
    ray_job_id: str | None = None
    ray_submission_id: str | None = None
    ray_actor_id: str | None = None
    ray_node_id: str | None = None
    ray_address: str | None = None
    log_ref: str | None = None


# What an executor on a cluster records about where an attempt runs, under the names that users see.
RUNNER_DETAILS = AttemptRecord._fields[AttemptRecord._fields.index("claimed_by") :]


class ResultRecord(NamedTuple):
    """Where the result of a run is: inline as text, or stored elsewhere under `ref`."""

    text: str | None
    ref: str | None
    size: int | None
    sha256: str | None


class EventRecord(NamedTuple):
    """One event. `seq` counts from 1 without gaps; `from_status` and `to_status` are the run's."""

    seq: int
    type: str
    from_status: str | None
    to_status: str | None
    reason: str | None
    at: datetime
    attempt: int


class LogRecord(NamedTuple):
    """A log line as stored."""

    seq: int
    at: datetime
    attempt: int
    level: str
    message: str


class QueueRecord(NamedTuple):
    name: str
    ready: int
    waiting: int
    running: int
    oldest_ready_at: datetime | None
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None


class WorkerRecord(NamedTuple):
    """A worker as stored. `status` is active, idle, draining or stopped."""

    id: str
    status: str
    hostname: str
    pid: int
    name: str
    executor: str
    version: str
    slots: int
    queues: list[str] | None
    tasks: list[str] | None
    running: int
    tasks_completed: int
    tasks_failed: int
    started_at: datetime
    heartbeat_at: datetime
    expires_at: datetime
    stopped_at: datetime | None


class WorkerFacts(NamedTuple):
    """What a worker recorded about itself when it started."""

    id: str
    hostname: str
    pid: int
    executor: str
    version: str
    environment: dict[str, Any] | None


class DeliveryRecord(NamedTuple):
    """An entry of the delivery log."""

    id: int
    subscription: str
    event_id: str
    type: str
    run_id: str
    status: str
    attempts: int
    response_code: int | None
    seconds: float | None
    error: str | None
    created_at: datetime
    due_at: datetime
    tried_at: datetime | None
    ended_at: datetime | None


class SubscriptionRecord(NamedTuple):
    """A subscription as stored."""

    id: str
    name: str
    kind: str
    target: str
    secret: str | None
    filter: dict[str, list[str]]
    created_at: datetime
    paused_at: datetime | None
    pause_reason: str | None


class TokenRecord(NamedTuple):
    """A token as listed: without its secret."""

    id: str
    name: str
    hint: str
    scopes: tuple[str, ...]
    status: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class Reason(NamedTuple):
    """Why a run is in its state: a stable code and its fields. `detail` is the sentence for people."""

    code: str
    fields: Mapping[str, Any] = {}
    text: str | None = None
    """The sentence as received from a server, which may be of another version."""

    @property
    def detail(self) -> str:
        return self.text or describe(self.code, self.fields) or self.code


class Provenance(NamedTuple):
    """How a result was produced: the run, its attempts, and the workers that executed them."""

    run: RunRecord
    attempts: list[AttemptRecord]
    workers: dict[str, WorkerFacts]
    result: ResultRecord | None


class Page(list[T], Generic[T]):
    """A page of a list. More may follow after `next_cursor`, even if the page is short; None means the last page."""

    def __init__(self, items: Iterable[T] = (), next_cursor: str | None = None) -> None:
        super().__init__(items)
        self.next_cursor = next_cursor


class TaskSummary(NamedTuple):
    """Counts of one task's runs. `pending` are those that are neither running nor ended."""

    task: str
    created: int
    pending: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    retried: int
    lost: int
    mean_seconds: float | None
