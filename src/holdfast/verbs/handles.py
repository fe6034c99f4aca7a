"""Handles: what clients return for a run. A handle has the fields of the run, and makes calls about it.

`blocking` and `awaiting` make the methods of clients from verbs; runs in their answers become handles.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from holdfast.documents.runs import run_document
from holdfast.domain.records import Page
from holdfast.domain.states import Status
from holdfast.domain.values import RunRecord, Submitted
from holdfast.verbs import history, outcomes, runs
from holdfast.verbs.verb import Verb, signed

if TYPE_CHECKING:
    from holdfast.verbs.facades import AsyncCalls, Calls

P = ParamSpec("P")
T = TypeVar("T")
H = TypeVar("H", bound="RunFields")


class Recorded(Generic[T]):
    """An attribute that reads a field of the record, by default the one with its own name."""

    def __init__(self, name: str = "") -> None:
        self._name = name

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = self._name or name

    @overload
    def __get__(self, run: None, owner: type) -> Self: ...

    @overload
    def __get__(self, run: RunFields, owner: type) -> T: ...

    def __get__(self, run: RunFields | None, owner: type) -> Self | T:
        if run is None:
            return self
        found: T = getattr(run.record, self._name)
        return found


class RunFields:
    """The fields of a run, as they were when it was last read."""

    id = Recorded[str]()
    run_id = Recorded[str]("id")
    model = Recorded[str]("task")
    task = Recorded[str]()
    status = Recorded[Status]()
    reason = Recorded[str | None]()
    parameters = Recorded[Any]()
    payload_hash = Recorded[str]()
    queue = Recorded[str]()
    priority = Recorded[int]()
    tags = Recorded[tuple[str, ...]]()
    attempt_count = Recorded[int]()
    max_attempts = Recorded[int]()
    progress = Recorded[dict[str, Any] | None]()
    last_error = Recorded[str | None]()
    error = Recorded[dict[str, Any] | None]()
    result_ref = Recorded[str | None]()
    lease_owner = Recorded[str | None]()
    lease_expires_at = Recorded[datetime | None]()
    heartbeat_at = Recorded[datetime | None]()
    created_at = Recorded[datetime]()
    run_after = Recorded[datetime | None]()
    due_at = Recorded[datetime | None]()
    started_at = Recorded[datetime | None]()
    finished_at = Recorded[datetime | None]()
    cancel_requested_at = Recorded[datetime | None]()
    job_id = Recorded[str | None]()
    parent_id = Recorded[str | None]()
    child_key = Recorded[str | None]()
    concurrency_key = Recorded[str | None]()
    submitted_by = Recorded[str | None]()
    version = Recorded[str]()
    worker_id = Recorded[str | None]()

    record: RunRecord
    created: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the run as the document that the HTTP API returns."""
        return run_document(self.record)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.model} {self.status}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunFields) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)


def _changing(verb: Verb[Concatenate[object, P], RunRecord]) -> Callable[Concatenate[Run, P], Run]:
    """A method that changes the run, and returns the handle."""

    def method(self: Run, /, *args: P.args, **kwargs: P.kwargs) -> Run:
        self.record = self._client.execute(verb, (self, *args), kwargs)
        return self

    return signed(method, verb, {"RunRecord": "Run"}, hides=1)


def _reading(verb: Verb[Concatenate[object, P], T]) -> Callable[Concatenate[Run, P], T]:
    """A method that reads something about the run."""

    def method(self: Run, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._client.execute(verb, (self, *args), kwargs)

    return signed(method, verb, hides=1)


class Run(RunFields):
    """A run, and the calls about it through a blocking client."""

    def __init__(self, client: Calls, record: RunRecord, created: bool = False) -> None:
        self.record = record
        self.created = created
        self._client = client

    refresh = _changing(runs.get)
    cancel = _changing(outcomes.cancel)
    postpone = _changing(outcomes.postpone)
    retry = _changing(outcomes.retry)
    events = _reading(history.events)
    attempts = _reading(history.attempts)
    why = _reading(history.why)

    def wait(self, timeout: float | None = None) -> Run:
        """Return once the run has ended, with any status; raises WaitTimeout after `timeout` seconds."""
        self.record = self._client.wait(self, timeout).record
        return self

    def result(self) -> Any:
        """Return the task's result. Raises RunNotFinished, RunFailed or RunCancelled if there is no result."""
        return self._client.result(self)


def _changing_async(
    verb: Verb[Concatenate[object, P], RunRecord],
) -> Callable[Concatenate[AsyncRun, P], Coroutine[Any, Any, AsyncRun]]:
    async def method(self: AsyncRun, /, *args: P.args, **kwargs: P.kwargs) -> AsyncRun:
        self.record = await self._client.execute(verb, (self, *args), kwargs)
        return self

    return signed(method, verb, {"RunRecord": "AsyncRun"}, hides=1)


def _reading_async(verb: Verb[Concatenate[object, P], T]) -> Callable[Concatenate[AsyncRun, P], Coroutine[Any, Any, T]]:
    async def method(self: AsyncRun, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._client.execute(verb, (self, *args), kwargs)

    return signed(method, verb, hides=1)


class AsyncRun(RunFields):
    """A run, and the calls about it through an asynchronous client."""

    def __init__(self, client: AsyncCalls, record: RunRecord, created: bool = False) -> None:
        self.record = record
        self.created = created
        self._client = client

    refresh = _changing_async(runs.get)
    cancel = _changing_async(outcomes.cancel)
    postpone = _changing_async(outcomes.postpone)
    retry = _changing_async(outcomes.retry)
    events = _reading_async(history.events)
    attempts = _reading_async(history.attempts)
    why = _reading_async(history.why)

    async def wait(self, timeout: float | None = None) -> AsyncRun:
        """Return once the run has ended, with any status; raises WaitTimeout after `timeout` seconds."""
        self.record = (await self._client.wait(self, timeout)).record
        return self

    async def result(self) -> Any:
        """Return the task's result. Raises RunNotFinished, RunFailed or RunCancelled if there is no result."""
        return await self._client.result(self)


class Runs(Sequence[H]):
    """The runs of a bulk submission. A handle is made when it is first read, and kept."""

    def __init__(self, answers: Sequence[Submitted], make: Callable[[Submitted], H]) -> None:
        self._answers = answers
        self._make = make
        self._made: dict[int, H] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def __iter__(self) -> Iterator[H]:
        for position, answer in enumerate(self._answers):
            yield self._made.get(position) or self._made.setdefault(position, self._make(answer))

    @overload
    def __getitem__(self, index: int) -> H: ...
    @overload
    def __getitem__(self, index: slice) -> list[H]: ...
    def __getitem__(self, index: int | slice) -> H | list[H]:
        if isinstance(index, slice):
            return [self[position] for position in range(len(self))[index]]
        position = range(len(self))[index]
        return self._made.get(position) or self._made.setdefault(position, self._make(self._answers[position]))

    def __repr__(self) -> str:
        return repr(list(self))


# What signatures show for answers that are returned as handles.
_RUNS = {"RunRecord": "Run", "Submitted": "Run", "Sequence[Submitted]": "Sequence[Run]", "Page[RunRecord]": "Page[Run]"}
_ASYNC_RUNS = {answer: returned.replace("Run", "AsyncRun") for answer, returned in _RUNS.items()}


def present(client: Any, answer: Any, handle: Callable[..., Any]) -> Any:
    """The result of a call, with handles for the runs in it."""
    match answer:
        case Submitted():
            return handle(client, answer.run, answer.created)
        case RunRecord():
            return handle(client, answer)
        case Page():
            return Page((handle(client, record) for record in answer), answer.next_cursor)
        case [Submitted(), *_]:
            return Runs(answer, lambda one: handle(client, one.run, one.created))
        case _:
            return answer


@overload
def blocking(verb: Verb[P, RunRecord]) -> Callable[Concatenate[Calls, P], Run]: ...
@overload
def blocking(verb: Verb[P, Submitted]) -> Callable[Concatenate[Calls, P], Run]: ...
@overload
def blocking(verb: Verb[P, Sequence[Submitted]]) -> Callable[Concatenate[Calls, P], Sequence[Run]]: ...
@overload
def blocking(verb: Verb[P, Page[RunRecord]]) -> Callable[Concatenate[Calls, P], Page[Run]]: ...
@overload
def blocking(verb: Verb[P, T]) -> Callable[Concatenate[Calls, P], T]: ...
def blocking(verb: Verb[..., Any]) -> Callable[..., Any]:
    """Return a method that makes a call and returns its result, with handles for runs."""

    def method(self: Calls, /, *args: Any, **kwargs: Any) -> Any:
        return present(self, self.execute(verb, args, kwargs), Run)

    return signed(method, verb, _RUNS)


@overload
def awaiting(verb: Verb[P, RunRecord]) -> Callable[Concatenate[AsyncCalls, P], Coroutine[Any, Any, AsyncRun]]: ...
@overload
def awaiting(verb: Verb[P, Submitted]) -> Callable[Concatenate[AsyncCalls, P], Coroutine[Any, Any, AsyncRun]]: ...
@overload
def awaiting(
    verb: Verb[P, Sequence[Submitted]],
) -> Callable[Concatenate[AsyncCalls, P], Coroutine[Any, Any, Sequence[AsyncRun]]]: ...
@overload
def awaiting(
    verb: Verb[P, Page[RunRecord]],
) -> Callable[Concatenate[AsyncCalls, P], Coroutine[Any, Any, Page[AsyncRun]]]: ...
@overload
def awaiting(verb: Verb[P, T]) -> Callable[Concatenate[AsyncCalls, P], Coroutine[Any, Any, T]]: ...
def awaiting(verb: Verb[..., Any]) -> Callable[..., Any]:
    """The same for an asynchronous client."""

    async def method(self: AsyncCalls, /, *args: Any, **kwargs: Any) -> Any:
        return present(self, await self.execute(verb, args, kwargs), AsyncRun)

    return signed(method, verb, _ASYNC_RUNS)
