"""Slow requests: /livez and submits with 2,000 connections that send a byte every 2 s, and without them, by turns.

    python -m bench.http_slow [CONNECTIONS] [REQUESTS] [ROUNDS]

Half of the connections send a head without end, half a body without end. Each one that the server closes is opened
again. The ratio is the median over rounds of the rate of submits with them over the rate without.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from statistics import median
from time import perf_counter
from typing import Any, Self
from urllib.parse import urlsplit

import orjson

from bench.http_stage import stage

EVERY = 2.0
LOOK_EVERY = 0.1
SENDERS = 16
HEAD = b"POST /runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BEGINNINGS = (HEAD + b"X-Slow: ", HEAD + b"Content-Length: 100000\r\n\r\n")


async def trickle(host: str, port: int, beginning: bytes, opened: asyncio.Semaphore) -> None:
    """One slow connection after the other."""
    while True:
        try:
            reader, writer = await asyncio.open_connection(host, port)
        except OSError:
            await asyncio.sleep(EVERY)
            continue
        writer.write(beginning)
        opened.release()
        try:
            while not reader.at_eof():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(EVERY)
        except OSError:
            pass
        finally:
            writer.close()


async def hold(url: str, count: int, ready: Any) -> None:
    parts = urlsplit(url)
    opened = asyncio.Semaphore(0)
    tasks = []
    for number in range(count):
        slow = trickle(str(parts.hostname), int(parts.port or 0), BEGINNINGS[number % 2], opened)
        tasks.append(asyncio.create_task(slow))
        await opened.acquire()
        # So that they do not all send in the same instant.
        await asyncio.sleep(EVERY / count)
    ready.send(count)
    await asyncio.gather(*tasks)


def hold_open(url: str, count: int, ready: Any) -> None:
    asyncio.run(hold(url, count, ready))


@contextmanager
def slow_connections(url: str, count: int) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=hold_open, args=(url, count, theirs), daemon=True)
    process.start()
    try:
        ours.recv()
        yield
    finally:
        process.kill()
        process.join()


class Livez:
    """Asks /livez all the time, each time on a new connection, and keeps the longest wait."""

    def __init__(self, url: str) -> None:
        self.waits: list[float] = []
        self._url = urlsplit(url)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._stop.wait(LOOK_EVERY):
            began = perf_counter()
            connection = HTTPConnection(str(self._url.hostname), self._url.port, timeout=30)
            try:
                connection.request("GET", "/livez")
                assert connection.getresponse().status == 200
                self.waits.append(perf_counter() - began)
            except (OSError, HTTPException):
                self.waits.append(float("inf"))
            finally:
                connection.close()


def submit(url: str, requests: int, name: str) -> float:
    """Submits a second."""
    command = [sys.executable, "-m", "bench.http_load", url, "/runs", str(SENDERS), str(requests), name]
    outcome = orjson.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert set(outcome["statuses"]) == {"201"}, outcome
    rate: float = outcome["rate"]
    return rate


def main() -> None:
    given = [int(word) for word in sys.argv[1:]]
    count, requests, rounds = given + [2000, 2000, 5][len(given) :]
    run = os.getpid()
    ratios, worst = [], 0.0
    with stage() as here:
        submit(here.url, 500, f"warm-{run}")
        for number in range(rounds):
            quiet = submit(here.url, requests, f"quiet-{run}-{number}")
            with slow_connections(here.url, count), Livez(here.url) as livez:
                busy = submit(here.url, requests, f"busy-{run}-{number}")
            ratios.append(busy / quiet)
            worst = max(worst, *livez.waits)
            shown = f"without {quiet:5.0f}/s, with {busy:5.0f}/s, ratio {ratios[-1]:.2f}"
            print(f"round {number + 1}: {shown}, /livez at most {max(livez.waits) * 1000:.0f} ms", flush=True)
    print(f"{count} slow connections: submits {median(ratios):.2f} of the rate without (goal 0.70);", end=" ")
    print(f"/livez at most {worst * 1000:.0f} ms (goal 1000)")


if __name__ == "__main__":
    main()
