"""What clients hand out: a run that can be asked things."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from holdfast.documents.runs import run_document
from holdfast.domain.records import AttemptRecord, EventRecord, Reason
from holdfast.domain.states import Status
from holdfast.domain.values import RunRecord

if TYPE_CHECKING:
    from holdfast.client.asynchronous import AsyncAsking
    from holdfast.client.blocking import Asking

T = TypeVar("T")


class Recorded(Generic[T]):
    """An attribute that reads a field of the record: its own name, unless it is called otherwise."""

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

    def __init__(self, record: RunRecord, created: bool = False) -> None:
        self.record = record
        self.created = created

    def as_dict(self) -> dict[str, Any]:
        """The document that the HTTP API answers."""
        return run_document(self.record)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.model} {self.status}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunFields) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)


class Run(RunFields):
    """A run, asked through a blocking client."""

    def __init__(self, client: Asking, record: RunRecord, created: bool = False) -> None:
        super().__init__(record, created)
        self._client = client

    def refresh(self) -> Run:
        """Read the run again."""
        self.record = self._client.get(self).record
        return self

    def wait(self, timeout: float | None = None) -> Run:
        """Return once the run has ended, however it ended; raises WaitTimeout after `timeout` seconds."""
        self.record = self._client.wait(self, timeout).record
        return self

    def result(self) -> Any:
        """What the task returned. Raises RunNotFinished, RunFailed or RunCancelled if there is no result."""
        return self._client.result(self)

    def cancel(self, reason: str | None = None) -> Run:
        self.record = self._client.cancel(self, reason=reason).record
        return self

    def retry(self, by: str | None = None) -> Run:
        self.record = self._client.retry(self, by=by).record
        return self

    def events(self) -> list[EventRecord]:
        return self._client.events(self)

    def attempts(self) -> list[AttemptRecord]:
        return self._client.attempts(self)

    def why(self) -> list[Reason]:
        return self._client.why(self)


class AsyncRun(RunFields):
    """A run, asked through an asynchronous client."""

    def __init__(self, client: AsyncAsking, record: RunRecord, created: bool = False) -> None:
        super().__init__(record, created)
        self._client = client

    async def refresh(self) -> AsyncRun:
        """Read the run again."""
        self.record = (await self._client.get(self)).record
        return self

    async def wait(self, timeout: float | None = None) -> AsyncRun:
        """Return once the run has ended, however it ended; raises WaitTimeout after `timeout` seconds."""
        self.record = (await self._client.wait(self, timeout)).record
        return self

    async def result(self) -> Any:
        """What the task returned. Raises RunNotFinished, RunFailed or RunCancelled if there is no result."""
        return await self._client.result(self)

    async def cancel(self, reason: str | None = None) -> AsyncRun:
        self.record = (await self._client.cancel(self, reason=reason)).record
        return self

    async def retry(self, by: str | None = None) -> AsyncRun:
        self.record = (await self._client.retry(self, by=by)).record
        return self

    async def events(self) -> list[EventRecord]:
        return await self._client.events(self)

    async def attempts(self) -> list[AttemptRecord]:
        return await self._client.attempts(self)

    async def why(self) -> list[Reason]:
        return await self._client.why(self)
