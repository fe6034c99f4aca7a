"""The run as its task sees it: `current_run()` inside a task."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, NamedTuple, Protocol, TypeVar

import orjson

from holdfast.domain.canonical import canonical_text
from holdfast.domain.errors import (
    REMEDY,
    BadInput,
    ChildDiffers,
    HoldfastError,
    NotCanonical,
    Problem,
    RunCancelled,
    RunTimedOut,
    refused,
)
from holdfast.domain.reasons import LeaseRequest, ReasonCode
from holdfast.domain.tasks import registry
from holdfast.domain.times import is_duration
from holdfast.domain.values import AttemptRef, Claim, NewRun, Settlement, StoredResult

T = TypeVar("T")

PROGRESS_EVERY = 0.25
LEVELS = ("debug", "info", "warning", "error")
LISTED = 20


# The exception that is raised in a task that has to stop, by the reason of the request.
_STOPS: dict[ReasonCode, type[HoldfastError]] = {ReasonCode.CANCELLED: RunCancelled, ReasonCode.TIMEOUT: RunTimedOut}


class OwnTransaction(Protocol):
    """A connection whose transaction ends with the run."""

    connection: Any

    def block(self) -> Any:
        """A context manager that rolls back what was written in it if it exits with an exception."""

    def commit(self, settlement: Settlement) -> bool:
        """Settle the run as succeeded and commit, or roll back and return False if it may not succeed."""

    def rollback(self) -> None:
        """Roll back the transaction."""


class Link(Protocol):
    """How a run context communicates with its worker. Each executor has its own implementation."""

    @property
    def database_url(self) -> str: ...

    @property
    def worker_id(self) -> str: ...

    def progress(self, ref: AttemptRef, report: str) -> None: ...

    def log(self, ref: AttemptRef, level: str, message: str) -> None: ...

    def extend(self, ref: AttemptRef, seconds: float) -> None: ...

    def find_step(self, ref: AttemptRef, name: str) -> str | None: ...

    def record_step(self, ref: AttemptRef, name: str, result: str) -> None: ...

    def submit(self, ref: AttemptRef, task: str, parameters: Any, options: Mapping[str, Any]) -> str: ...

    def stored_children(self, ref: AttemptRef) -> dict[str, str]: ...

    def transaction(self, ref: AttemptRef) -> OwnTransaction: ...

    def store(self, ref: AttemptRef, text: bytes) -> StoredResult: ...


class Assignment(NamedTuple):
    """The part of a claim that an executor needs to perform it. Only first attempts have a `lag`."""

    run_id: str
    number: int
    task: str
    parameters: Any
    payload_hash: str
    job_id: str | None
    lag: float | None


def assignment_for(claim: Claim, parameters: Any) -> Assignment:
    """Return the parts of a claim that an executor needs, with the parameters in the form that it passes on."""
    run_id, number, _, task, _, _, payload_hash, _, _, lag, job_id, _, _, _ = claim
    fields = (run_id, number, task, parameters, payload_hash.hex(), job_id, lag if number == 1 else None)
    # Built directly as a tuple, because this is done for every run.
    return tuple.__new__(Assignment, fields)


class RunContext:
    """The run that the calling code belongs to.

    `id` identifies the run and stays the same across its attempts; `attempt` counts them from 1. `token` is the same
    number, used as a fencing token: it increases with every attempt, so pass it to systems that can reject older
    writers.
    """

    __slots__ = (
        "_calls",
        "_report",
        "_sent_at",
        "additions",
        "asked",
        "attempt",
        "differing",
        "id",
        "job_id",
        "lag",
        "link",
        "own_transaction",
        "parameters",
        "payload_hash",
        "stop_reason",
        "stop_request",
        "task",
    )

    def __init__(self, link: Link, given: Assignment) -> None:
        self.id, self.attempt, self.task, self.parameters, self.payload_hash, self.job_id, self.lag = given
        self.link = link
        self.stop_request: LeaseRequest | None = None
        self.stop_reason: Exception | None = None
        self._report: str | None = None
        self._sent_at = 0.0
        self._calls = 0
        self.additions: list[NewRun] = []
        self.asked: set[str] = set()
        self.differing: ChildDiffers | None = None
        self.own_transaction: OwnTransaction | None = None

    def __repr__(self) -> str:
        return f"<RunContext {self.task} {self.id} attempt {self.attempt}>"

    @property
    def token(self) -> int:
        """The fencing token: it increases with every attempt of this run."""
        return self.attempt

    @property
    def ref(self) -> AttemptRef:
        return AttemptRef(self.id, self.attempt)

    @property
    def cancelled(self) -> bool:
        """True once the run has been asked to stop. Code that never calls `progress` should check this regularly."""
        return self.stop_reason is not None

    def check(self) -> None:
        """Raise RunCancelled or RunTimedOut if the run must stop."""
        if self.stop_reason is not None:
            raise self.stop_reason

    def progress(
        self, done: float, total: float | None = None, unit: str | None = None, stage: str | None = None
    ) -> None:
        """Report the progress of the run. It may be called often: only some of the reports are sent.

        Raises RunCancelled when the run was asked to stop.
        """
        self.check()
        report = {"done": done, "total": total, "unit": unit, "stage": stage}
        self._report = canonical_text({name: value for name, value in report.items() if value is not None})
        if time.monotonic() - self._sent_at >= PROGRESS_EVERY:
            self.flush()

    def flush(self) -> None:
        """Send the latest progress, if it has not been sent yet."""
        if self._report is not None:
            self.link.progress(self.ref, self._report)
            self._report = None
            self._sent_at = time.monotonic()

    def log(self, message: str, level: str = "info") -> None:
        """Write a line to the run's log."""
        if level not in LEVELS:
            raise BadInput(
                f"level must be one of {', '.join(LEVELS)}, not {level!r}", [Problem("/level", "unknown level")]
            )
        self.link.log(self.ref, level, str(message))

    def extend(self, by: timedelta) -> None:
        """Extend the timeout of this attempt."""
        given: Any = by
        if not isinstance(given, timedelta) or not is_duration(given):
            raise refused(Problem("/by", "must be a positive timedelta of at most 30 years"))
        self.link.extend(self.ref, by.total_seconds())

    def step(self, name: str, fn: Callable[[], T]) -> T:
        """Call `fn` once over all attempts of the run: its result is stored, and later attempts reuse it.

        The result must be JSON; the stored value is returned (a tuple becomes a list). With an `async` function the
        step is awaited. Raises LeaseLost if this attempt may no longer write.
        """
        if inspect.iscoroutinefunction(fn):
            return self._step_later(name, fn)  # type: ignore[return-value]
        self.check()
        kept = self.link.find_step(self.ref, name)
        if kept is None:
            kept = canonical_text(fn())
            self.link.record_step(self.ref, name, kept)
        result: T = orjson.loads(kept)
        return result

    async def _step_later(self, name: str, fn: Callable[[], Awaitable[T]]) -> T:
        import asyncio

        self.check()
        kept = await asyncio.to_thread(self.link.find_step, self.ref, name)
        if kept is None:
            kept = canonical_text(await fn())
            await asyncio.to_thread(self.link.record_step, self.ref, name, kept)
        result: T = orjson.loads(kept)
        return result

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Return a psycopg connection in the run's own transaction.

        What is written there commits together with the run's success, or not at all. A block that raises is rolled back
        even if the run continues; do not commit or roll back yourself.
        """
        if self.own_transaction is None:
            self.own_transaction = self.link.transaction(self.ref)
        with self.own_transaction.block():
            yield self.own_transaction.connection

    def submit(
        self, task: Any, parameters: Mapping[str, Any] | None = None, key: str | None = None, **options: Any
    ) -> str:
        """Create a child run and return its id; `options` are those of `Client.submit`.

        A retried parent finds the children that it created before: by `key`, or else by the order of its calls.
        """
        self.check()
        child = self.child_name(key)
        name = task if isinstance(task, str) else getattr(task, "name", None)
        if not isinstance(name, str):
            raise BadInput(f"{task!r} is not a task; decorate it with @task, or name a registered one")
        given = {} if parameters is None else dict(parameters)
        asked = {"child": child, "key": key, **options}
        with self.asking(child):
            try:
                return self.link.submit(self.ref, name, given, asked)
            except NotCanonical:
                known = registry.find(name)
                if known is None:
                    raise
                return self.link.submit(self.ref, name, known.encode(given), asked)

    def child_name(self, key: str | None) -> str:
        """The name of a child within this run, the same for every attempt: its key, or else the order of the calls."""
        self._calls += 1
        return f"key {key}" if key is not None else f"call {self._calls}"

    @contextmanager
    def asking(self, name: str) -> Iterator[None]:
        """Record that this attempt requests the child with this name. If the child differs, the attempt cannot succeed,
        even if the task continues."""
        self.asked.add(name)
        try:
            yield
        except ChildDiffers as error:
            self.differing = self.differing or error
            raise

    def check_children(self) -> None:
        """Raise ChildDiffers if this attempt requested different or fewer children than an earlier one."""
        if self.differing is not None:
            raise self.differing
        stored = self.link.stored_children(self.ref) if self.attempt > 1 else {}
        left = [described for name, described in stored.items() if name not in self.asked]
        if left:
            more = f"; and {len(left) - LISTED} more" if len(left) > LISTED else ""
            raise ChildDiffers(
                f"attempt {self.attempt} of run {self.id} did not request what an earlier attempt had added: "
                f"{'; '.join(left[:LISTED])}{more}. {REMEDY}",
                left,
            )

    def ask_to_stop(self, request: LeaseRequest) -> None:
        """Called by the executor: from now on `cancelled` is true, and `progress` raises."""
        if self.stop_request is None:
            self.stop_reason = _STOPS.get(request.reason, HoldfastError)(request.message)
            self.stop_request = request


_current: ContextVar[RunContext] = ContextVar("holdfast_run")


def current_run() -> RunContext:
    """Return the run that is being executed. Raise HoldfastError outside of a task."""
    try:
        return _current.get()
    except LookupError:
        raise HoldfastError(
            "current_run() was called outside of a run; it works in a task that a worker executes, and in threads "
            "that were started with its context"
        ) from None


def find_run() -> RunContext | None:
    """Return the run that this code belongs to; None outside of a task."""
    return _current.get(None)


enter = _current.set
leave = _current.reset
