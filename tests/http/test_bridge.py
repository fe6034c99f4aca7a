"""The bridge between the event loop of the server and the WSGI application."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

from holdfast.http.bridge import ON_LEAVE, Bridge, Message, Scope

SCOPE: Scope = {
    "method": "GET",
    "raw_path": b"/",
    "query_string": b"",
    "http_version": "1.1",
    "scheme": "http",
    "server": None,
    "client": None,
    "headers": [],
}


def test_stream_ends_when_its_client_has_disconnected() -> None:
    left = threading.Event()
    produced: list[bytes] = []

    def pieces() -> Iterator[bytes]:
        for piece in (b"first", b"second", b"third"):
            produced.append(piece)
            yield piece
            assert left.wait(20)

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterator[bytes]:
        environ[ON_LEAVE](left.set)
        start_response("200 OK", [])
        return pieces()

    assert [message["body"] for message in asyncio.run(leaving(Bridge(app, max_body_bytes=10, threads=1)))] == [
        b"first",
        b"",
    ]
    assert produced == [b"first", b"second"]


async def leaving(bridge: Bridge) -> list[Message]:
    """Disconnect a client after the first chunk. Return what it was sent."""
    sent: list[Message] = []
    came, first = iter([{"type": "http.request"}]), asyncio.Event()

    async def receive() -> Message:
        if (message := next(came, None)) is not None:
            return message
        await first.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            sent.append(message)
            first.set()

    await bridge(dict(SCOPE), receive, send)
    return sent
