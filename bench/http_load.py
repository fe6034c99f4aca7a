"""A small load generator: raw HTTP/1.1 over kept connections, because a polite client would cost more than the server.

Each connection sends its next request when the answer to the last has come. Run it in a process of its own.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from urllib.parse import urlsplit

import orjson


@dataclass
class Outcome:
    """What came back."""

    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return sum(self.statuses.values()) / self.seconds

    def percentile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


class Connection(asyncio.Protocol):
    """One kept connection; `next_request` makes each request, or None when it is done."""

    def __init__(self, outcome: Outcome, next_request: Callable[[], bytes | None], done: asyncio.Future[None]) -> None:
        self.outcome = outcome
        self.next_request = next_request
        self.done = done
        self.buffer = b""
        self.sent_at = 0.0
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self._send()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        at = head.lower().find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(body) < length:
            return
        self.buffer = body[length:]
        self.outcome.statuses[int(head[9:12])] += 1
        self.outcome.latencies.append(perf_counter() - self.sent_at)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.outcome.statuses[0] += 1
            self.done.set_result(None)

    def _send(self) -> None:
        request = self.next_request()
        if request is None:
            self.done.set_result(None)
            self.transport.close()
            return
        self.sent_at = perf_counter()
        self.transport.write(request)


def post(host: str, path: str, body: bytes, *headers: str) -> bytes:
    lines = "".join(f"{header}\r\n" for header in headers)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{lines}"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def drive(url: str, connections: int, next_request: Callable[[], bytes | None]) -> Outcome:
    """Send requests over so many connections until there are no more."""
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    outcome = Outcome()
    waits = []
    began = perf_counter()
    for _ in range(connections):
        done: asyncio.Future[None] = loop.create_future()
        await loop.create_connection(lambda: Connection(outcome, next_request, done), parts.hostname, parts.port)  # noqa: B023
        waits.append(done)
    await asyncio.gather(*waits)
    outcome.seconds = perf_counter() - began
    return outcome


def main() -> None:
    """`python -m bench.http_load URL PATH CONNECTIONS REQUESTS RUN`: posts runs with keys of their own."""
    url, path, connections, requests, run = sys.argv[1:]
    host = urlsplit(url).netloc
    numbers = iter(range(int(requests)))

    def next_request() -> bytes | None:
        number = next(numbers, None)
        if number is None:
            return None
        body = b'{"model":"mock","parameters":{"seconds":1.5,"steps":%d,"payload":{"region":"AU","n":%d}}}'
        return post(host, path, body % (number % 100 + 1, number), f"Idempotency-Key: {run}-{number}")

    outcome = asyncio.run(drive(url, int(connections), next_request))
    shown = {
        "rate": outcome.rate,
        "statuses": {str(status): amount for status, amount in outcome.statuses.items()},
        "p50": outcome.percentile(0.5),
        "p99": outcome.percentile(0.99),
    }
    sys.stdout.write(orjson.dumps(shown).decode() + "\n")


if __name__ == "__main__":
    main()
