"""The WSGI application on the event loop of the server.

The loop receives the complete request before a thread of the pool handles it, so a slow request occupies no thread.
The loop also sends complete responses; only a streamed response occupies its thread until the end.

This module imports nothing from Holdfast: the server imports it before it has set the directory for the metrics of
several processes.
"""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# The environ key of the function that registers a callback for when the client disconnects.
ON_LEAVE = "holdfast.on_leave"
BARE = frozenset({"CONTENT_TYPE", "CONTENT_LENGTH"})


class Bridge:
    """An ASGI application that calls a WSGI one in threads."""

    def __init__(self, app: Any, *, max_body_bytes: int, threads: int) -> None:
        self.app = app
        self._max_body_bytes = max_body_bytes
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="holdfast-request")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        environ = _environ(scope)
        body = await _body(environ.get("CONTENT_LENGTH", ""), receive, self._max_body_bytes)
        if body is None:
            return
        loop = asyncio.get_running_loop()
        client = _Client(loop, receive, send)
        environ |= {"wsgi.input": io.BytesIO(body), ON_LEAVE: client.on_leave}
        try:
            for message in await loop.run_in_executor(self._pool, self._answer, environ, client):
                await send(message)
        finally:
            client.forget()

    def _answer(self, environ: dict[str, Any], client: _Client) -> Iterable[Message]:
        """Call the application, in a thread. Return the messages that the loop still has to send."""
        started: list[tuple[str, list[tuple[str, str]]]] = []
        pieces = self.app(environ, lambda status, headers, error=None: started.append((status, headers)))
        status, headers = started[0]
        encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        start = {"type": "http.response.start", "status": int(status[:3]), "headers": encoded}
        try:
            iterator = iter(pieces)
            # A response of known length is read ahead: if it is a single chunk, the loop sends it.
            known = isinstance(pieces, tuple) or any(name == b"content-length" for name, _ in encoded)
            ahead = list(islice(iterator, 2)) if known else []
            if known and len(ahead) < 2:
                return start, _piece(b"".join(ahead))
            client.on_leave(None)
            client.send(start)
            for piece in chain(ahead, iterator):
                if client.left:
                    break
                client.send(_piece(piece, more=True))
            return (_piece(b""),)
        finally:
            if hasattr(pieces, "close"):
                pieces.close()


class _Client:
    """The client of a request, for the thread that answers it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, receive: Receive, send: Send) -> None:
        self.left = False
        self._loop = loop
        self._receive = receive
        self._send = send
        self._callbacks: list[Callable[[], None]] = []
        self._watcher: asyncio.Task[None] | None = None

    def send(self, message: Message) -> None:
        """Send, and wait while the client has too much unread data."""
        asyncio.run_coroutine_threadsafe(self._deliver(message), self._loop).result()

    def on_leave(self, callback: Callable[[], None] | None) -> None:
        """Watch the client, and have the loop call this once the client has disconnected."""
        self._loop.call_soon_threadsafe(self._watch, callback)

    def forget(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()

    async def _deliver(self, message: Message) -> None:
        await self._send(message)

    def _watch(self, callback: Callable[[], None] | None) -> None:
        if callback is not None:
            self._callbacks.append(callback)
        if self._watcher is None:
            self._watcher = self._loop.create_task(self._wait())
        elif self.left and callback is not None:
            callback()

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.left = True
        for callback in self._callbacks:
            callback()


async def _body(length: str, receive: Receive, limit: int) -> bytes | None:
    """Return the body of a request; None if the client disconnected before its end.

    A body that is too large is received only up to the limit, and the application rejects it.
    """
    if length.isdigit() and int(length) > limit:
        return b""
    parts: list[bytes] = []
    size, more = 0, True
    while more and size <= limit:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)
        more = message.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _piece(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}


def _environ(scope: Scope) -> dict[str, Any]:
    path: bytes = scope["raw_path"]
    if not path.startswith(b"/"):
        path = urlsplit(path).path or path  # the absolute form, meant for proxies: a whole URL
    server, client = scope["server"] or ("", 0), scope["client"] or ("", 0)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1]),
        "REMOTE_ADDR": client[0],
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.errors": sys.stderr,
        "wsgi.input_terminated": True,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    for name, value in scope["headers"]:
        key = name.decode("latin-1").upper().replace("-", "_")
        key = key if key in BARE else f"HTTP_{key}"
        text = value.decode("latin-1")
        # Joined with a space, which no Idempotency-Key contains, so two keys cannot look like one.
        environ[key] = f"{environ[key]}, {text}" if key in environ else text
    return environ
