"""What clients hand out: a run that can be asked things."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.client.documents import run_document
from holdfast.domain.states import Status
from holdfast.domain.values import RunRecord
from holdfast.ops.explain import Reason
from holdfast.sql.attempts import AttemptRecord
from holdfast.sql.events import EventRecord

if TYPE_CHECKING:
    from holdfast.client.asynchronous import AsyncAsking
    from holdfast.client.blocking import Asking


class RunFields:
    """The fields of a run, as they were when it was last read."""

    def __init__(self, record: RunRecord, created: bool = False) -> None:
        self.record = record
        self.created = created

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def run_id(self) -> str:
        return self.record.id

    @property
    def model(self) -> str:
        return self.record.task

    @property
    def status(self) -> Status:
        return self.record.status

    @property
    def attempt_count(self) -> int:
        return self.record.attempt_count

    @property
    def created_at(self) -> datetime:
        return self.record.created_at

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "record":
            raise AttributeError(name)
        return getattr(self.record, name)

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
