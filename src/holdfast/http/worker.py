"""A process of the API server: gunicorn's ASGI worker with request deadlines, problem documents and shutdown."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from contextlib import suppress
from secrets import token_hex
from typing import Any

import orjson
from gunicorn.asgi.protocol import ASGIProtocol  # type: ignore[import-untyped]
from gunicorn.workers.gasgi import ASGIWorker  # type: ignore[import-untyped]

from holdfast.http.problems import BY_STATUS, KINDS, MEDIA_TYPE, document
from holdfast.http.service import EXTENSION, Service

# From the first byte of a request, or from the start of the connection, to the end of the headers.
HEAD_SECONDS = 10
# From the end of the headers to the end of the body.
BODY_SECONDS = 30
# For requests that are still incomplete when the server stops.
STOP_SECONDS = 1
# For a client to read this many bytes of a response that does not fit into the buffers.
SEND_SECONDS = 30
SEND_BYTES = 65536
# Descriptors reserved for the database, for files and for gunicorn.
RESERVED_FILES = 256

HEAD, BODY = "head", "body"
DETAILS = {
    400: "This is not a valid HTTP request.",
    414: "The request line is longer than 8190 bytes.",
    431: "The request has more than 100 headers, or a header longer than 8190 bytes.",
    501: "The only Transfer-Encoding that this server supports is chunked.",
}


class ApiProtocol(ASGIProtocol):  # type: ignore[misc]
    """One connection. A request is rejected if it is not complete by its deadline, even if its bytes keep arriving."""

    def __init__(self, worker: ApiWorker) -> None:
        super().__init__(worker)
        self._missing: str | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._sending: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.worker.connections.add(self)
        if len(self.worker.connections) > self.worker.max_connections:
            self._refuse(503, "This server process has reached its connection limit. Try again soon.")
        self._expect(HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        self.worker.connections.discard(self)
        self._expect(None)
        self.resume_writing()
        super().connection_lost(exc)

    def eof_received(self) -> bool:
        """Answer a client that has only closed its sending side, if its request is complete."""
        if self._missing is not None:
            self._refuse(400, "The connection was closed before the request was complete.")
        if self._current_request is None or self._closed:
            return False
        self._keepalive = 0
        # Otherwise the application could no longer read the body.
        if self._body_receiver._body_finished:  # noqa: SLF001
            self._body_receiver.signal_disconnect()
        return True

    def finish(self) -> None:
        """Close the connection as soon as nothing is in flight on it."""
        if self._missing is not None:
            self._expect(self._missing, STOP_SECONDS)
        elif self._current_request is None:
            self._drop()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_sending(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._sending is not None:
            self._sending.cancel()

    def _watch_sending(self, unsent: int) -> None:
        self._sending = self.worker.loop.call_later(SEND_SECONDS, self._check_sending, unsent)

    def _check_sending(self, unsent: int) -> None:
        left = self.transport.get_write_buffer_size()
        if unsent - left < SEND_BYTES:
            self.transport.abort()
        else:
            self._watch_sending(left)

    def _feed_callback_parser(self, data: bytes) -> bool:
        try:
            fed: bool = super()._feed_callback_parser(data)
        except ValueError:  # a number that Python does not parse, such as a length with 5,000 digits
            self._refuse(400, "")
            return False
        missing = HEAD if self._current_request is None else None if self._callback_parser.is_complete else BODY
        if missing != self._missing:
            self._expect(missing)
        return fed

    def _expect(self, missing: str | None, seconds: float | None = None) -> None:
        """Set the deadline for the rest of the request."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._missing = missing
        if missing is not None and not self._closed:
            seconds = seconds or (HEAD_SECONDS if missing == HEAD else BODY_SECONDS)
            detail = f"The {missing} of the request did not arrive within {seconds} seconds. Send the request again."
            self._deadline = self.worker.loop.call_later(seconds, self._refuse, 408, detail)

    def _refuse(self, status: int, detail: str) -> None:
        self._send_error_response(status, detail)
        self._drop()

    def _drop(self) -> None:
        self._close_transport()
        self._request_ready.set()

    def _is_websocket_upgrade(self, request: Any) -> bool:
        return False

    def _send_error_response(self, status: int, message: str, extra_headers: Any = ()) -> None:
        """Answer with a problem document even if the request never reaches the application."""
        if not self._closed:
            self._safe_write(_problem(BY_STATUS.get(status, "internal-error"), DETAILS.get(status, message)))


class ApiWorker(ASGIWorker):  # type: ignore[misc]
    """Receives requests on an event loop, and answers them in threads."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.connections: set[ApiProtocol] = set()
        self.max_connections = 0
        self._stopping = asyncio.Event()

    def init_process(self) -> None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        files = most if most != resource.RLIM_INFINITY else sys.maxsize
        self.max_connections = min(self.worker_connections, files - RESERVED_FILES)
        super().init_process()

    def handle_exit_signal(self) -> None:
        super().handle_exit_signal()
        self._stopping.set()

    def handle_quit_signal(self) -> None:
        super().handle_quit_signal()
        self._stopping.set()

    async def _serve(self) -> None:
        for listener in self.sockets:
            self.servers.append(await self.loop.create_server(lambda: ApiProtocol(self), sock=listener.sock))
        while self.alive and self.ppid == os.getppid():
            self.notify()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), 1.0)
        await self._shutdown()

    async def _shutdown(self) -> None:
        self.alive = False
        self.service.stop_streams()
        for server in self.servers:
            server.close()
        for connection in tuple(self.connections):
            connection.finish()
        await super()._shutdown()

    @property
    def service(self) -> Service:
        found: Service = self.asgi.app.extensions[EXTENSION]
        return found


def _problem(kind: str, detail: str) -> bytes:
    request_id = token_hex(8)
    body = orjson.dumps(document(kind, detail, request_id=request_id))
    head = (
        f"HTTP/1.1 {KINDS[kind].status} {KINDS[kind].title}\r\n"
        f"Content-Type: {MEDIA_TYPE}\r\nContent-Length: {len(body)}\r\n"
        f"X-Content-Type-Options: nosniff\r\nX-Request-Id: {request_id}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
