"""The blocking client of the HTTP API."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Self, TypeVar

from holdfast.client.waiting import timed_out
from holdfast.documents.runs import event_document, log_document, run_document
from holdfast.domain.errors import ClientClosed, ConfigurationError
from holdfast.domain.records import EventRecord, LogRecord, Page, ResultRecord
from holdfast.http_client.refusals import error_from
from holdfast.http_client.sse import Reader
from holdfast.http_client.transport import (
    BROKEN,
    NOT_SENT,
    TEMPORARY_STATUSES,
    Retries,
    arguments,
    open_blocking,
    pause_before_next_wait,
    retry_after,
    unreachable,
)
from holdfast.runtime.forking import PerProcess, require_process
from holdfast.runtime.settings import Settings, load
from holdfast.verbs import runs
from holdfast.verbs.facades import Calls
from holdfast.verbs.forms import Reply
from holdfast.verbs.handles import Run
from holdfast.verbs.requests import Request, read, request_of
from holdfast.verbs.subjects import run_id
from holdfast.verbs.verb import Verb

T = TypeVar("T")

MAX_WAIT = 20.0


class ApiClient:
    """What both clients of the API have in common: how they are created, and when they send a request again."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        settings: Settings | None = None,
        timeout: float = 30.0,
        retry_seconds: float = 30.0,
    ) -> None:
        self.settings = settings or load()
        self.url = (url or self.settings.url or "").rstrip("/")
        if not self.url:
            raise ConfigurationError("the URL of the API is not known; pass url, or set HOLDFAST_URL")
        self._closed = False
        self._retry_seconds = retry_seconds
        self._connect(token or self.settings.token, timeout)

    def _connect(self, token: str | None, timeout: float) -> None:
        raise NotImplementedError

    def load_result(self, found: ResultRecord) -> bytes:
        return (found.text or "null").encode()

    def _require_open(self) -> None:
        if self._closed:
            raise ClientClosed(type(self).__name__)

    def _pause_after(self, request: Request, sent: Reply | Exception, retries: Retries) -> float:
        """Return the pause before the request is sent again. Raises the error of the reply if that is not safe."""
        if isinstance(sent, Exception):
            pause = retries.pause() if request.repeatable or isinstance(sent, NOT_SENT) else None
            if pause is None:
                raise unreachable(self.url, sent) from sent
        else:
            pause = retries.pause(sent.headers) if sent.status in TEMPORARY_STATUSES and request.repeatable else None
            if pause is None:
                raise error_from(sent.status, sent.body)
        return pause


class HttpClient(ApiClient, Calls):
    """Submits runs, waits for them and controls them over HTTP, with the names of `Client`.

    A request without a response is sent again, for up to `retry_seconds`; a submission has a key, so sending it again
    does not create a second run. `url` and `token` come from the settings unless given.
    """

    def _connect(self, token: str | None, timeout: float) -> None:
        self._http = PerProcess(lambda: open_blocking(self.url, token, timeout))

    def wait(self, run: object, timeout: float | None = None) -> Run:
        ends = None if timeout is None else time.monotonic() + timeout
        found = self.get(run)
        while not found.status.final:
            now = time.monotonic()
            left = MAX_WAIT if ends is None else min(MAX_WAIT, ends - now)
            if left <= 0:
                raise timed_out(run_id(run), timeout)
            request = request_of(runs.get, (run,), {})
            reply = self.send(replace(request, query={"wait": f"{left:.3f}"}))
            found = Run(self, run_document.read(reply.json()))
            if not found.status.final:
                time.sleep(pause_before_next_wait(retry_after(reply.headers), now + left))
        return found

    wait.__doc__ = Calls.wait.__doc__

    def follow_events(self, run: object, after: int = 0) -> Iterator[EventRecord]:
        """Events as they happen, until the run has ended. A stream that breaks is resumed."""
        return self._follow(f"/runs/{run_id(run)}/events", after, event_document.read)

    def follow_logs(self, run: object, after: int = 0) -> Iterator[LogRecord]:
        """Lines of the log as they are written, until the run has ended."""
        return self._follow(f"/runs/{run_id(run)}/logs", after, log_document.read)

    def execute(self, verb: Verb[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> T:
        request = request_of(verb, args, kwargs)
        answer: Any = read(verb, self.send(request))
        while isinstance(answer, Page) and not answer and answer.next_cursor is not None:
            answer = read(verb, self.send(request.after(answer.next_cursor)))
        found: T = answer
        return found

    def send(self, request: Request) -> Reply:
        """Send a request, and retry it if that is safe. Raises the error that a problem document describes."""
        self._require_open()
        retries = Retries(self._retry_seconds)
        while True:
            sent: Reply | Exception
            try:
                found = self._http.get().request(**arguments(request))
                sent = Reply(found.status_code, found.headers, found.content)
                if sent.status < 300:
                    return sent
            except BROKEN as error:
                sent = error
            time.sleep(self._pause_after(request, sent, retries))

    def _follow(self, path: str, after: int, read: Callable[[dict[str, Any]], T]) -> Iterator[T]:
        self._require_open()
        pid = os.getpid()
        reader = Reader(after)
        retries = Retries(self._retry_seconds)
        while not reader.ended:
            headers = {"Accept": "text/event-stream", "Last-Event-ID": str(reader.last)}
            pause: float | None = None
            reader.begin()
            try:
                with self._http.get().stream("GET", path, headers=headers) as answer:
                    if answer.status_code == 204:
                        return
                    if answer.status_code != 200:
                        pause = retries.pause(answer.headers) if answer.status_code in TEMPORARY_STATUSES else None
                        if pause is None:
                            raise error_from(answer.status_code, answer.read())
                    else:
                        retries = Retries(self._retry_seconds)
                        for line in answer.iter_lines():
                            for document in reader.feed(line):
                                yield read(document)
                                require_process(pid, "this stream", "follow the run again after the fork")
                        pause = retries.pause()
            except BROKEN as error:
                pause = retries.pause()
                if pause is None:
                    raise unreachable(self.url, error) from error
            if pause:
                time.sleep(pause)

    def close(self) -> None:
        self._closed = True
        opened = self._http.opened()
        if opened is not None:
            opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
