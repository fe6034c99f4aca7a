"""The blocking client of the HTTP API."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
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
from holdfast.http_client.runs import HttpRun
from holdfast.http_client.sse import Reader
from holdfast.http_client.transport import BROKEN, NOT_SENT, headers_for, open_blocking, unreachable
from holdfast.runtime.forking import PerProcess, require_process
from holdfast.runtime.settings import Settings, load

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


def blocking(ask: Callable[P, Ask[T]], wrap: Callable[[HttpClient, T], R]) -> Callable[Concatenate[HttpClient, P], R]:
    """A method that asks and wraps the answer."""

    def method(self: HttpClient, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return wrap(self, self.perform(ask(*args, **kwargs)))

    return signed(method, ask, wrap, hides=0)


def _as_is(client: HttpClient, value: T) -> T:
    return value


def _run(client: HttpClient, record: RunRecord) -> HttpRun:
    return HttpRun(client, record)


def _submitted(client: HttpClient, answer: Submitted) -> HttpRun:
    return HttpRun(client, answer.run, answer.created)


def _submitted_many(client: HttpClient, answers: list[Submitted]) -> list[HttpRun]:
    return [HttpRun(client, answer.run, answer.created) for answer in answers]


class HttpClient:
    """Submits runs, waits for them and steers them over HTTP, with the names of `Client`.

    What is not answered is asked again, for up to `patience` seconds; a submission is known by its key, so asking again
    makes no second run. `url` and `token` come from the settings unless given.
    """

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
        self._http = PerProcess(lambda: open_blocking(self.url, headers, timeout))
        self._closed = False
        self._patience = patience

    submit = blocking(asks.submit, _submitted)
    submit_many = blocking(asks.submit_many, _submitted_many)
    get = blocking(asks.get, _run)
    result = blocking(asks.result, _as_is)
    cancel = blocking(asks.cancel, _run)
    retry = blocking(asks.retry, _run)
    events = blocking(asks.events, _as_is)
    logs = blocking(asks.logs, _as_is)
    attempts = blocking(asks.attempts, _as_is)
    why = blocking(asks.why, _as_is)
    workers = blocking(asks.workers, _as_is)
    drain_worker = blocking(asks.drain_worker, _as_is)
    queues = blocking(asks.queues, _as_is)
    pause_queue = blocking(asks.pause_queue, _as_is)
    resume_queue = blocking(asks.resume_queue, _as_is)
    summary = blocking(asks.summary, _as_is)

    def list(self, **filters: Unpack[RunFilters]) -> Page[HttpRun]:
        """Read runs, newest first; go on with `cursor=page.next_cursor`, which is None at the end of the list.

        A page may have fewer than `limit` runs although there are more. It is empty only if there are none.
        """
        page = self.perform(asks.list_runs(**filters))
        while not page and page.next_cursor is not None:
            page = self.perform(asks.list_runs(**(filters | RunFilters(cursor=page.next_cursor))))
        return Page((HttpRun(self, record) for record in page), page.next_cursor)

    def wait(self, run: object, timeout: float | None = None) -> HttpRun:
        """Return the run once it has ended, however it ended; raises WaitTimeout after `timeout` seconds."""
        ends = None if timeout is None else time.monotonic() + timeout
        found = self.get(run)
        while not found.status.final:
            now = time.monotonic()
            left = MAX_WAIT if ends is None else min(MAX_WAIT, ends - now)
            if left <= 0:
                raise timed_out(run_id(run), timeout)
            record, told = self.perform(asks.awaited(run, left))
            found = HttpRun(self, record)
            if not found.status.final:
                time.sleep(rest(told, now + left))
        return found

    def follow_events(self, run: object, after: int = 0) -> Iterator[EventRecord]:
        """Events as they happen, until the run has ended. A stream that breaks off is resumed where it was."""
        return self._follow(f"/runs/{run_id(run)}/events", after, records.event)

    def follow_logs(self, run: object, after: int = 0) -> Iterator[LogRecord]:
        """Lines of the log as they are written, until the run has ended."""
        return self._follow(f"/runs/{run_id(run)}/logs", after, records.log_line)

    def perform(self, ask: Ask[T]) -> T:
        """Send a request, again where that does no harm, and read the answer."""
        self._require_open()
        patience = Patience(self._patience)
        while True:
            try:
                sent = self._http.get().request(
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
            time.sleep(pause)

    def _follow(self, path: str, after: int, read: Callable[[dict[str, Any]], T]) -> Iterator[T]:
        self._require_open()
        pid = os.getpid()
        reader = Reader(after)
        patience = Patience(self._patience)
        while not reader.ended:
            headers = {"Accept": "text/event-stream", "Last-Event-ID": str(reader.last)}
            pause: float | None = None
            reader.begin()
            try:
                with self._http.get().stream("GET", path, headers=headers) as answer:
                    if answer.status_code == 204:
                        return
                    if answer.status_code != 200:
                        pause = patience.pause(answer.headers) if answer.status_code in PASSING else None
                        if pause is None:
                            raise error_from(answer.status_code, answer.read())
                    else:
                        patience = Patience(self._patience)
                        for line in answer.iter_lines():
                            for message in reader.feed(line):
                                yield read(message.data)
                                require_process(pid, "this stream", "follow the run again after the fork")
                        pause = patience.pause()
            except BROKEN as error:
                pause = patience.pause()
                if pause is None:
                    raise unreachable(self.url, error) from error
            if pause:
                time.sleep(pause)

    def _require_open(self) -> None:
        if self._closed:
            raise ClientClosed("HttpClient")

    def close(self) -> None:
        self._closed = True
        opened = self._http.opened()
        if opened is not None:
            opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
