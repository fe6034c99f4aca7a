"""Postgres is killed under load, is away for a while, and comes back: nothing that was acknowledged is lost.

    python -m bench.http_outage [SECONDS_AWAY] [CLIENTS]

Runs on an embedded server of its own, with fsync on.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from time import monotonic
from urllib.parse import urlsplit

import orjson
import psycopg

from bench.http_load import post
from bench.http_stage import Stage, stage
from bench.http_streams import ask


class Load:
    """Clients that post with a key until they are stopped, and repeat each key until it is acknowledged."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.host, self.port = str(parts.hostname), int(parts.port or 0)
        self.acknowledged: dict[str, str] = {}
        self.statuses: Counter[int] = Counter()
        self.slowest_refusal = 0.0
        self.without_hint = 0
        self.succeeded = asyncio.Event()
        self.stopping = False

    async def client(self, number: int) -> None:
        count = 0
        while not self.stopping:
            key = f"{number}-{count}"
            body = orjson.dumps({"model": "mock", "parameters": {"payload": key}})
            began = monotonic()
            try:
                request = post(f"{self.host}:{self.port}", "/runs", body, f"Idempotency-Key: {key}")
                status, answer = await ask(self.host, self.port, request)
            except (OSError, asyncio.IncompleteReadError):
                status, answer = 0, b""
            self.statuses[status] += 1
            if status in (200, 201):
                self.acknowledged[key] = orjson.loads(answer)["run_id"]
                self.succeeded.set()
                count += 1
            else:
                self.slowest_refusal = max(self.slowest_refusal, monotonic() - began)
                await asyncio.sleep(0.2)


def kill(here: Stage) -> None:
    """Kill the whole server as a power cut would: the postmaster first, so that it restarts nothing."""
    with psycopg.connect(here.database_url) as connection:
        row = connection.execute("select current_setting('data_directory')").fetchone()
    pid = int((Path(row[0] if row else "") / "postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    os.kill(pid, signal.SIGKILL)
    for child in children:
        try:
            os.kill(int(child), signal.SIGKILL)
        except ProcessLookupError:
            continue


async def measure(here: Stage, away: float, clients: int) -> None:
    load = Load(here.url)
    tasks = [asyncio.create_task(load.client(number)) for number in range(clients)]
    await asyncio.sleep(5)
    before = len(load.acknowledged)
    kill(here)
    await asyncio.sleep(away)
    during = Counter(load.statuses)
    await asyncio.to_thread(here.postgres.revive)
    back = monotonic()
    load.succeeded.clear()
    await load.succeeded.wait()
    recovered = monotonic() - back
    await asyncio.sleep(5)
    load.stopping = True
    await asyncio.gather(*tasks)
    with psycopg.connect(here.database_url) as connection:
        kept = dict(connection.execute("select id::text, parameters ->> 'payload' from holdfast.runs").fetchall())
    lost = [key for key, run_id in load.acknowledged.items() if kept.get(run_id) != key]
    doubled = len(kept) - len(set(kept.values()))
    print(f"acknowledged {before} before, {len(load.acknowledged)} in all; answers while away {dict(during)}")
    print(f"answers in all {dict(load.statuses)}; the slowest refusal took {load.slowest_refusal:.2f} s")
    print(f"first success {recovered:.2f} s after Postgres was back; lost {len(lost)}, made twice {doubled}")
    assert not lost
    assert not doubled
    assert set(load.statuses) <= {200, 201, 503}


def main() -> None:
    away, clients = ([int(word) for word in sys.argv[1:]] + [20, 8][len(sys.argv) - 1 :])[:2]
    with stage() as here:
        assert here.postgres is not None, "this kills the server, so it runs on one of its own"
        asyncio.run(measure(here, away, clients))


if __name__ == "__main__":
    main()
