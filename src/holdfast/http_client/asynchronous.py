"""The asynchronous client of the HTTP API: the same calls, awaited."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any, Self, TypeVar

from holdfast.client.waiting import timed_out
from holdfast.documents.runs import event_document, log_document, run_document
from holdfast.domain.records import EventRecord, LogRecord, Page
from holdfast.http_client.blocking import MAX_WAIT, ApiClient, HttpClient
from holdfast.http_client.refusals import error_from
from holdfast.http_client.sse import Reader
from holdfast.http_client.transport import (
    BROKEN,
    TEMPORARY_STATUSES,
    Retries,
    arguments,
    open_async,
    pause_before_next_wait,
    retry_after,
    unreachable,
)
from holdfast.runtime.forking import PerProcess, require_process
from holdfast.verbs import runs
from holdfast.verbs.facades import AsyncCalls
from holdfast.verbs.forms import Reply
from holdfast.verbs.handles import AsyncRun
from holdfast.verbs.requests import Request, read, request_of
from holdfast.verbs.subjects import run_id
from holdfast.verbs.verb import Verb

T = TypeVar("T")


class AsyncHttpClient(ApiClient, AsyncCalls):
    """Submits runs, waits for them and controls them over HTTP, for code that awaits. Use it as `async with`."""

    def _connect(self, token: str | None, timeout: float) -> None:
        settings, retry_seconds = self.settings, self._retry_seconds
        self._http = PerProcess(lambda: open_async(self.url, token, timeout))
        self._blocking = PerProcess(
            lambda: HttpClient(self.url, token, settings=settings, timeout=timeout, retry_seconds=retry_seconds)
        )

    async def wait(self, run: object, timeout: float | None = None) -> AsyncRun:
        ends = None if timeout is None else time.monotonic() + timeout
        found = await self.get(run)
        while not found.status.final:
            now = time.monotonic()
            left = MAX_WAIT if ends is None else min(MAX_WAIT, ends - now)
            if left <= 0:
                raise timed_out(run_id(run), timeout)
            request = request_of(runs.get, (run,), {})
            reply = await self.send(replace(request, query={"wait": f"{left:.3f}"}))
            found = AsyncRun(self, run_document.read(reply.json()))
            if not found.status.final:
                await asyncio.sleep(pause_before_next_wait(retry_after(reply.headers), now + left))
        return found

    wait.__doc__ = AsyncCalls.wait.__doc__

    def follow_events(self, run: object, after: int = 0) -> AsyncIterator[EventRecord]:
        """Events as they happen, until the run has ended. A stream that breaks is resumed."""
        return self._follow(f"/runs/{run_id(run)}/events", after, event_document.read)

    def follow_logs(self, run: object, after: int = 0) -> AsyncIterator[LogRecord]:
        """Lines of the log as they are written, until the run has ended."""
        return self._follow(f"/runs/{run_id(run)}/logs", after, log_document.read)

    async def execute(self, verb: Verb[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> T:
        request = request_of(verb, args, kwargs)
        answer: Any = read(verb, await self.send(request))
        while isinstance(answer, Page) and not answer and answer.next_cursor is not None:
            answer = read(verb, await self.send(request.after(answer.next_cursor)))
        found: T = answer
        return found

    def blocking_client(self) -> HttpClient:
        return self._blocking.get()

    async def send(self, request: Request) -> Reply:
        """Send a request, and retry it if that is safe. Raises the error that a problem document describes."""
        self._require_open()
        retries = Retries(self._retry_seconds)
        while True:
            sent: Reply | Exception
            try:
                found = await self._http.get().request(**arguments(request))
                sent = Reply(found.status_code, found.headers, found.content)
                if sent.status < 300:
                    return sent
            except BROKEN as error:
                sent = error
            await asyncio.sleep(self._pause_after(request, sent, retries))

    async def _follow(self, path: str, after: int, read: Callable[[dict[str, Any]], T]) -> AsyncIterator[T]:
        self._require_open()
        pid = os.getpid()
        reader = Reader(after)
        retries = Retries(self._retry_seconds)
        while not reader.ended:
            headers = {"Accept": "text/event-stream", "Last-Event-ID": str(reader.last)}
            pause: float | None = None
            reader.begin()
            try:
                async with self._http.get().stream("GET", path, headers=headers) as answer:
                    if answer.status_code == 204:
                        return
                    if answer.status_code != 200:
                        pause = retries.pause(answer.headers) if answer.status_code in TEMPORARY_STATUSES else None
                        if pause is None:
                            raise error_from(answer.status_code, await answer.aread())
                    else:
                        retries = Retries(self._retry_seconds)
                        async for line in answer.aiter_lines():
                            for document in reader.feed(line):
                                yield read(document)
                                require_process(pid, "this stream", "follow the run again after the fork")
                        pause = retries.pause()
            except BROKEN as error:
                pause = retries.pause()
                if pause is None:
                    raise unreachable(self.url, error) from error
            if pause:
                await asyncio.sleep(pause)

    async def close(self) -> None:
        self._closed = True
        blocking = self._blocking.opened()
        if blocking is not None:
            blocking.close()
        opened = self._http.opened()
        if opened is not None:
            await opened.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
