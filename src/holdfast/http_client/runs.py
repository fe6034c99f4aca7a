"""What the HTTP clients hand out: runs that can be asked things, with the names of `Run` and `AsyncRun`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.client.handles import RunFields
from holdfast.domain.records import AttemptRecord, EventRecord, Reason
from holdfast.domain.values import RunRecord

if TYPE_CHECKING:
    from holdfast.http_client.asynchronous import AsyncHttpClient
    from holdfast.http_client.blocking import HttpClient


class HttpRun(RunFields):
    """A run, asked through an HttpClient."""

    def __init__(self, client: HttpClient, record: RunRecord, created: bool = False) -> None:
        super().__init__(record, created)
        self._client = client

    def refresh(self) -> HttpRun:
        """Read the run again."""
        self.record = self._client.get(self).record
        return self

    def wait(self, timeout: float | None = None) -> HttpRun:
        """Return once the run has ended, however it ended; raises WaitTimeout after `timeout` seconds."""
        self.record = self._client.wait(self, timeout).record
        return self

    def result(self) -> Any:
        """What the task returned. Raises RunNotFinished, RunFailed or RunCancelled if there is no result."""
        return self._client.result(self)

    def cancel(self, reason: str | None = None) -> HttpRun:
        self.record = self._client.cancel(self, reason=reason).record
        return self

    def retry(self, by: str | None = None) -> HttpRun:
        self.record = self._client.retry(self, by=by).record
        return self

    def events(self) -> list[EventRecord]:
        return self._client.events(self)

    def attempts(self) -> list[AttemptRecord]:
        return self._client.attempts(self)

    def why(self) -> list[Reason]:
        return self._client.why(self)


class AsyncHttpRun(RunFields):
    """A run, asked through an AsyncHttpClient."""

    def __init__(self, client: AsyncHttpClient, record: RunRecord, created: bool = False) -> None:
        super().__init__(record, created)
        self._client = client

    async def refresh(self) -> AsyncHttpRun:
        """Read the run again."""
        self.record = (await self._client.get(self)).record
        return self

    async def wait(self, timeout: float | None = None) -> AsyncHttpRun:
        """Return once the run has ended, however it ended; raises WaitTimeout after `timeout` seconds."""
        self.record = (await self._client.wait(self, timeout)).record
        return self

    async def result(self) -> Any:
        """What the task returned. Raises RunNotFinished, RunFailed or RunCancelled if there is no result."""
        return await self._client.result(self)

    async def cancel(self, reason: str | None = None) -> AsyncHttpRun:
        self.record = (await self._client.cancel(self, reason=reason)).record
        return self

    async def retry(self, by: str | None = None) -> AsyncHttpRun:
        self.record = (await self._client.retry(self, by=by)).record
        return self

    async def events(self) -> list[EventRecord]:
        return await self._client.events(self)

    async def attempts(self) -> list[AttemptRecord]:
        return await self._client.attempts(self)

    async def why(self) -> list[Reason]:
        return await self._client.why(self)
