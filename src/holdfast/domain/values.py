"""Values passed between operations, workers and clients."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple, overload

import orjson

from holdfast.domain.states import AttemptStatus, Status


class AttemptRef(NamedTuple):
    """One attempt of one run. The number is the fencing token: it increases with every claim."""

    run_id: str
    number: int


class Claim(NamedTuple):
    """A run leased to a worker, with everything needed to execute it and to settle its outcome."""

    run_id: str
    number: int
    excused: int
    task: str
    queue: str
    parameters: str
    payload_hash: bytes
    policy: str | None
    crashes: int
    lag: float
    job_id: str | None
    traceparent: str | None
    ord: int
    rank_at: str

    @property
    def ref(self) -> AttemptRef:
        return AttemptRef(self.run_id, self.number)

    @property
    def spent(self) -> int:
        """How many attempts count toward the limit, including this one."""
        return self.number - self.excused


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A result stored outside Postgres."""

    ref: str
    size: int
    sha256: str


class Settlement(NamedTuple):
    """How an attempt ended, and what follows for its run: the outcome, or a retry and its delay."""

    ref: AttemptRef
    status: AttemptStatus
    outcome: Status | None
    task: str = ""
    elapsed: float | None = 0.0
    """The attempt's duration in seconds; None if it was not measured: then it is the time since the claim."""
    lag: float | None = None
    delay: float = 0.0
    excuse: bool = False
    result: str | None = None
    stored: StoredResult | None = None
    reason: str | None = None
    error: dict[str, Any] | None = None
    exit_code: int | None = None
    executor: str | None = None
    adds: tuple[NewRun, ...] = ()
    begun: bool = True
    rank_at: str | None = None
    """The position of the run in its queue, if the attempt was never `begun` and the run goes back there."""


RELEASED = "RELEASED"


class Acknowledgement(NamedTuple):
    """How the database settled an attempt; `accepted` is False if the attempt no longer held its lease.

    Its status is RELEASED if the attempt never started and the run is ready again, with the same number.
    """

    ref: AttemptRef
    accepted: bool
    status: str
    outcome: str | None
    job_id: str | None = None
    map_id: str | None = None
    elapsed: float = 0.0
    """The attempt's duration in seconds, from the stored times; not set for a success, which the worker measures."""


class Acknowledgements(list[Acknowledgement]):
    """Acknowledgements in the order requested. `released` names the queues in which runs became ready."""

    released: frozenset[str] = frozenset()


class Dependency(NamedTuple):
    """A run waits for another run, or for a map, to end: with success, with failure, or either."""

    on_id: str
    policy: str = "success"


class KnownAs(NamedTuple):
    """The name of a child, unique within its origin: the run, job or map that it was added to."""

    origin: str
    name: str


@dataclass(frozen=True, slots=True)
class Position:
    """Where the last claim in a queue stopped; the next claim starts there."""

    queue: str
    ord: int = -32768
    rank_at: str = "-infinity"
    run_id: str = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What a worker records about itself when it starts."""

    id: str
    hostname: str
    pid: int
    name: str
    executor: str
    version: str
    slots: int
    lease: timedelta
    queues: tuple[str, ...] | None = None
    tasks: tuple[str, ...] | None = None
    environment: Mapping[str, Any] | None = None
    """Versions of Python, packages and task code, recorded for the provenance of results."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """The result of a renewal: the leases still held, those to be stopped, and whether to drain."""

    held: frozenset[AttemptRef]
    cancelled: frozenset[AttemptRef]
    drain: bool


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to be created: everything `submit` writes. The caller generates `id`, so submitting twice is harmless."""

    id: str
    task: str
    parameters: str
    payload_hash: str
    queue: str = "default"
    priority: int = 0
    run_after: datetime | timedelta | None = None
    policy: str | None = None
    tags: tuple[str, ...] = ()
    key: str | None = None
    scope: str = ""
    key_ttl: timedelta = timedelta(hours=24)
    dedupe: str | timedelta = "off"
    dedupe_window: timedelta = timedelta(minutes=10)
    concurrency_key: str | None = None
    job_id: str | None = None
    parent_id: str | None = None
    child_key: str | None = None
    submitted_by: str | None = None
    traceparent: str | None = None
    map_id: str | None = None
    depends_on: tuple[Dependency, ...] = ()
    ring: bool = False
    """Whether the statement that creates the run also rings for its queue, or hands the run to a waiting worker, if the
    run is due immediately."""
    known_as: KnownAs | None = None
    """Its name within the run or job that it is added to; a run that already has this name keeps its id."""

    def with_payload(self, payload: Payload) -> NewRun:
        """The same run with another id, parameters and hash."""
        return replace(self, id=payload.id, parameters=payload.parameters, payload_hash=payload.payload_hash)


class Payload(NamedTuple):
    """The part of a run that differs within a batch."""

    id: str
    parameters: str
    payload_hash: str


class RunRecord(NamedTuple):
    """A run as stored: the request, its status, and its outcome."""

    id: str
    task: str
    status: Status
    parameters: Any
    payload_hash: str
    queue: str
    priority: int
    created_at: datetime
    run_after: datetime | None = None
    due_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempt_count: int = 0
    max_attempts: int = 3
    reason: str | None = None
    progress: dict[str, Any] | None = None
    last_error: str | None = None
    error: dict[str, Any] | None = None
    result_ref: str | None = None
    lease_owner: str | None = None
    lease_expires_at: datetime | None = None
    heartbeat_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    job_id: str | None = None
    parent_id: str | None = None
    child_key: str | None = None
    concurrency_key: str | None = None
    submitted_by: str | None = None
    tags: tuple[str, ...] = ()
    version: str = ""
    worker_id: str | None = None
    """The worker that holds the run, or held it last; only set for tasks of jobs."""

    @property
    def attempts(self) -> str:
        """Attempts made of attempts allowed, such as `2 of 3`. A run that was reopened or handed back may have had more
        attempts than its policy allows; then only the number made."""
        within = self.attempt_count <= self.max_attempts
        return f"{self.attempt_count} of {self.max_attempts}" if within else f"{self.attempt_count}"

    def alike(self, payloads: Iterable[Payload]) -> list[RunRecord]:
        """Return this run with other payloads, eight times as fast as `_replace`: there may be thousands of them."""
        new, loads = partial(tuple.__new__, RunRecord), orjson.loads
        first, last = self[1:3], self[5:]
        return [new((id_, *first, loads(text), payload_hash, *last)) for id_, text, payload_hash in payloads]


class Submitted(NamedTuple):
    """The result of a submission: the run, whether it was created, and whether the doorbell rang for it."""

    run: RunRecord
    created: bool
    rung: bool = False


class NewRuns(Sequence[Submitted]):
    """The result of a bulk submission that created all of its runs, which differ only in their payload.

    A run becomes a record when it is read: most programs look at few of the thousands that they submit.
    """

    def __init__(self, batches: Sequence[tuple[RunRecord, Sequence[Payload]]]) -> None:
        self._batches = batches
        self._ends = list(accumulate(len(payloads) for _, payloads in batches))

    @property
    def queue(self) -> str:
        return self._batches[0][0].queue

    def __len__(self) -> int:
        return self._ends[-1]

    def __iter__(self) -> Iterator[Submitted]:
        return (Submitted(run, True) for head, payloads in self._batches for run in head.alike(payloads))

    @overload
    def __getitem__(self, index: int) -> Submitted: ...
    @overload
    def __getitem__(self, index: slice) -> list[Submitted]: ...
    def __getitem__(self, index: int | slice) -> Submitted | list[Submitted]:
        if isinstance(index, slice):
            return [self[position] for position in range(len(self))[index]]
        position = range(len(self))[index]
        batch = bisect_right(self._ends, position)
        head, payloads = self._batches[batch]
        (run,) = head.alike([payloads[position - self._ends[batch]]])
        return Submitted(run, True)
