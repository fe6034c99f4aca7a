"""Requests while streams are open: 50 a second without streams and with 200 streams, alternating.

    python -m bench.http_streams [STREAMS] [RATE] [SECONDS] [ROUNDS]

Each request is a POST or a GET of a run, sent at its time whether or not the last one was answered.
"""

from __future__ import annotations

import asyncio
import sys
from statistics import median
from time import perf_counter
from urllib.parse import urlsplit

import orjson

from bench.http_load import Outcome, post
from bench.http_stage import stage


async def ask(host: str, port: int, request: bytes) -> tuple[int, bytes]:
    """One request on a connection of its own."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        at = head.lower().find(b"content-length:")
        body = await reader.readexactly(int(head[at + 15 :].split(b"\r\n", 1)[0])) if at >= 0 else b""
        return int(head[9:12]), body
    finally:
        writer.close()


async def load(host: str, port: int, rate: int, seconds: int, name: str) -> Outcome:
    """Requests at a steady rate."""
    outcome = Outcome(seconds=seconds)
    runs: list[str] = []

    async def one(number: int) -> None:
        await asyncio.sleep(number / rate)
        began = perf_counter()
        if number % 2 and runs:
            request = f"GET /runs/{runs[-1]} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
        else:
            body = b'{"model":"mock","parameters":{"steps":%d},"dedupe":"off"}' % (number % 1000 + 1)
            request = post(f"{host}:{port}", "/runs", body, f"Idempotency-Key: {name}-{number}")
        try:
            status, answer = await ask(host, port, request)
        except (OSError, asyncio.IncompleteReadError):
            outcome.statuses[0] += 1
            return
        outcome.statuses[status] += 1
        outcome.latencies.append(perf_counter() - began)
        if status == 201:
            runs.append(orjson.loads(answer)["run_id"])

    await asyncio.gather(*(one(number) for number in range(rate * seconds)))
    return outcome


class Stream:
    """One open stream, and what it has received."""

    def __init__(self, host: str, port: int, run_id: str) -> None:
        self.host, self.port, self.run_id = host, port, run_id
        self.text = b""

    async def open(self) -> None:
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        asked = f"GET /runs/{self.run_id}/events HTTP/1.1\r\nHost: {self.host}\r\nAccept: text/event-stream\r\n\r\n"
        self.writer.write(asked.encode())
        self.text += await self.reader.readuntil(b"SUBMITTED")

    async def end(self) -> bool:
        """Wait for the event that ends the stream; False if it does not arrive."""
        try:
            async with asyncio.timeout(60):
                while b"event: end" not in self.text:
                    piece = await self.reader.read(65536)
                    if not piece:
                        return False
                    self.text += piece
            return True
        finally:
            self.writer.close()


async def with_streams(host: str, port: int, count: int, rate: int, seconds: int, name: str) -> Outcome:
    """The same load while streams are open. Afterwards the runs are cancelled, and every stream must end."""
    streams = []
    for number in range(count):
        body = b'{"model":"mock","parameters":{"seconds":%d},"run_after":"2099-01-01T00:00:00Z"}' % number
        _, answer = await ask(host, port, post(f"{host}:{port}", "/runs", body))
        streams.append(Stream(host, port, orjson.loads(answer)["run_id"]))
    await asyncio.gather(*(stream.open() for stream in streams))
    # What is measured is open streams: opening so many in an instant takes the server half a second.
    await asyncio.sleep(2)
    busy = await load(host, port, rate, seconds, name)
    for stream in streams:
        await ask(host, port, post(f"{host}:{port}", f"/runs/{stream.run_id}/cancel", b"{}"))
    ended = await asyncio.gather(*(stream.end() for stream in streams))
    assert all(ended), f"{ended.count(False)} of {count} streams did not receive the end"
    return busy


def summary(name: str, outcome: Outcome) -> str:
    assert set(outcome.statuses) <= {200, 201}, f"{name}: answers {dict(outcome.statuses)}"
    p50, p99 = outcome.percentile(0.5) * 1000, outcome.percentile(0.99) * 1000
    return f"{name}: {sum(outcome.statuses.values())} answers, p50 {p50:.1f} ms, p99 {p99:.1f} ms"


async def measure(url: str, count: int, rate: int, seconds: int, rounds: int) -> None:
    parts = urlsplit(url)
    host, port = str(parts.hostname), int(parts.port or 0)
    await load(host, port, rate, 3, "warm")
    ratios = []
    for turn in range(rounds):
        quiet = await load(host, port, rate, seconds, f"quiet-{turn}")
        busy = await with_streams(host, port, count, rate, seconds, f"busy-{turn}")
        ratios.append(busy.percentile(0.99) / quiet.percentile(0.99))
        print(
            f"{summary('no streams', quiet)}; {summary(f'{count} streams', busy)}; p99 ratio {ratios[-1]:.2f}",
            flush=True,
        )
    print(f"p99 ratio {median(ratios):.2f} (median of {rounds}, goal at most 3.0); every stream received its end")


def main() -> None:
    given = [int(word) for word in sys.argv[1:]]
    count, rate, seconds, rounds = given + [200, 50, 20, 5][len(given) :]
    with stage() as here:
        asyncio.run(measure(here.url, count, rate, seconds, rounds))


if __name__ == "__main__":
    main()
