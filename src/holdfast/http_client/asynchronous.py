"""The asynchronous client of the HTTP API: the same asks, awaited."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from holdfast.client.calls import run_id
from holdfast.client.methods import signed
from holdfast.client.waiting import timed_out
from holdfast.documents import reading as records
from holdfast.domain.errors import ClientClosed, ConfigurationError
from holdfast.domain.records import EventRecord, LogRecord, Page
from holdfast.domain.values import RunRecord, Submitted
from holdfast.http_client import asks
from holdfast.http_client.asks import MAX_WAIT, Ask, Reply, RunFilters
from holdfast.http_client.patience import PASSING, Patience, rest
from holdfast.http_client.refusals import error_from
from holdfast.http_client.runs import AsyncHttpRun
from holdfast.http_client.sse import Reader
from holdfast.http_client.transport import BROKEN, NOT_SENT, headers_for, open_async, unreachable
from holdfast.runtime.forking import PerProcess, require_process
from holdfast.runtime.settings import Settings, load

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


def awaiting(
    ask: Callable[P, Ask[T]], wrap: Callable[[AsyncHttpClient, T], R]
) -> Callable[Concatenate[AsyncHttpClient, P], Awaitable[R]]:
    """A method that asks and wraps the answer."""

    async def method(self: AsyncHttpClient, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return wrap(self, await self.perform(ask(*args, **kwargs)))

    return signed(method, ask, wrap, hides=0)


def _as_is(client: AsyncHttpClient, value: T) -> T:
    return value


def _run(client: AsyncHttpClient, record: RunRecord) -> AsyncHttpRun:
    return AsyncHttpRun(client, record)


def _submitted(client: AsyncHttpClient, answer: Submitted) -> AsyncHttpRun:
    return AsyncHttpRun(client, answer.run, answer.created)


def _submitted_many(client: AsyncHttpClient, answers: list[Submitted]) -> list[AsyncHttpRun]:
    return [AsyncHttpRun(client, answer.run, answer.created) for answer in answers]


class AsyncHttpClient:
    """Submits runs, waits for them and steers them over HTTP, for code that awaits. Use it as `async with`."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        settings: Settings | None = None,
        timeout: float = 30.0,
        patience: float = 30.0,
    ) -> None:
        self.settings = settings or load()
        self.url = (url or self.settings.url or "").rstrip("/")
        if not self.url:
            raise ConfigurationError("the API's address is not known; give a url, or set HOLDFAST_URL")
        headers = headers_for(token or self.settings.token)
        self._http = PerProcess(lambda: open_async(self.url, headers, timeout))
        self._closed = False
        self._patience = patience

    submit = awaiting(asks.submit, _submitted)
    submit_many = awaiting(asks.submit_many, _submitted_many)
    get = awaiting(asks.get, _run)
    result = awaiting(asks.result, _as_is)
    cancel = awaiting(asks.cancel, _run)
    retry = awaiting(asks.retry, _run)
    events = awaiting(asks.events, _as_is)
    logs = awaiting(asks.logs, _as_is)
    attempts = awaiting(asks.attempts, _as_is)
    why = awaiting(asks.why, _as_is)
    workers = awaiting(asks.workers, _as_is)
    drain_worker = awaiting(asks.drain_worker, _as_is)
    queues = awaiting(asks.queues, _as_is)
    pause_queue = awaiting(asks.pause_queue, _as_is)
    resume_queue = awaiting(asks.resume_queue, _as_is)
    summary = awaiting(asks.summary, _as_is)

    async def list(self, **filters: Unpack[RunFilters]) -> Page[AsyncHttpRun]:
        """Read runs, newest first; go on with `cursor=page.next_cursor`, which is None at the end of the list.

        A page may have fewer than `limit` runs although there are more. It is empty only if there are none.
        """
        page = await self.perform(asks.list_runs(**filters))
        while not page and page.next_cursor is not None:
            page = await self.perform(asks.list_runs(**(filters | RunFilters(cursor=page.next_cursor))))
        return Page((AsyncHttpRun(self, record) for record in page), page.next_cursor)

    async def wait(self, run: object, timeout: float | None = None) -> AsyncHttpRun:
        """Return the run once it has ended, however it ended; raises WaitTimeout after `timeout` seconds."""
        ends = None if timeout is None else time.monotonic() + timeout
        found = await self.get(run)
        while not found.status.final:
            now = time.monotonic()
            left = MAX_WAIT if ends is None else min(MAX_WAIT, ends - now)
            if left <= 0:
                raise timed_out(run_id(run), timeout)
            record, told = await self.perform(asks.awaited(run, left))
            found = AsyncHttpRun(self, record)
            if not found.status.final:
                await asyncio.sleep(rest(told, now + left))
        return found

    def follow_events(self, run: object, after: int = 0) -> AsyncIterator[EventRecord]:
        """Events as they happen, until the run has ended. A stream that breaks off is resumed where it was."""
        return self._follow(f"/runs/{run_id(run)}/events", after, records.event)

    def follow_logs(self, run: object, after: int = 0) -> AsyncIterator[LogRecord]:
        """Lines of the log as they are written, until the run has ended."""
        return self._follow(f"/runs/{run_id(run)}/logs", after, records.log_line)

    async def perform(self, ask: Ask[T]) -> T:
        """Send a request, again where that does no harm, and read the answer."""
        self._require_open()
        patience = Patience(self._patience)
        while True:
            try:
                sent = await self._http.get().request(
                    ask.method, ask.path, params=dict(ask.query), headers=dict(ask.headers), content=ask.body
                )
                reply = Reply(sent.status_code, sent.headers, sent.content)
            except BROKEN as error:
                pause = patience.pause() if ask.repeatable or isinstance(error, NOT_SENT) else None
                if pause is None:
                    raise unreachable(self.url, error) from error
            else:
                if reply.status < 300:
                    return ask.read(reply)
                pause = patience.pause(reply.headers) if reply.status in PASSING and ask.repeatable else None
                if pause is None:
                    raise error_from(reply.status, reply.body)
            await asyncio.sleep(pause)

    async def _follow(self, path: str, after: int, read: Callable[[dict[str, Any]], T]) -> AsyncIterator[T]:
        self._require_open()
        pid = os.getpid()
        reader = Reader(after)
        patience = Patience(self._patience)
        while not reader.ended:
            headers = {"Accept": "text/event-stream", "Last-Event-ID": str(reader.last)}
            pause: float | None = None
            reader.begin()
            try:
                async with self._http.get().stream("GET", path, headers=headers) as answer:
                    if answer.status_code == 204:
                        return
                    if answer.status_code != 200:
                        pause = patience.pause(answer.headers) if answer.status_code in PASSING else None
                        if pause is None:
                            raise error_from(answer.status_code, await answer.aread())
                    else:
                        patience = Patience(self._patience)
                        async for line in answer.aiter_lines():
                            for message in reader.feed(line):
                                yield read(message.data)
                                require_process(pid, "this stream", "follow the run again after the fork")
                        pause = patience.pause()
            except BROKEN as error:
                pause = patience.pause()
                if pause is None:
                    raise unreachable(self.url, error) from error
            if pause:
                await asyncio.sleep(pause)

    def _require_open(self) -> None:
        if self._closed:
            raise ClientClosed("AsyncHttpClient")

    async def close(self) -> None:
        self._closed = True
        opened = self._http.opened()
        if opened is not None:
            await opened.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
