"""PGQueuer on asyncpg and uvloop, with its batches set to what drains fastest.

python -m bench.programs.pgqueuer schema|client|worker URL
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import Any

import asyncpg
import uvloop
from pgqueuer.db import AsyncpgDriver
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

from bench.board import body
from bench.programs.asking import chunks, serve

BATCH = 1000


async def queries(url: str) -> Queries:
    return Queries(AsyncpgDriver(await asyncpg.connect(url)))


async def schema(url: str) -> None:
    await (await queries(url)).install()


async def worker(url: str) -> None:
    manager = QueueManager(await queries(url))

    @manager.entrypoint("noop")
    async def noop(job: Any) -> None:
        body(json.loads(job.payload)["n"])

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, manager.shutdown.set)
    await manager.run(batch_size=BATCH)


def client(url: str) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        asking = runner.run(queries(url))

        async def one(first: int, count: int) -> None:
            for number in range(first, first + count):
                await asking.enqueue("noop", json.dumps({"n": number}).encode())

        async def bulk(first: int, count: int) -> None:
            for chunk in chunks(first, count):
                payloads: list[bytes | None] = [json.dumps({"n": number}).encode() for number in chunk]
                await asking.enqueue(["noop"] * len(chunk), payloads, [0] * len(chunk))

        serve(lambda first, count: runner.run(one(first, count)), lambda first, count: runner.run(bulk(first, count)))


if __name__ == "__main__":
    action, address = sys.argv[1:3]
    if action == "client":
        client(address)
    else:
        uvloop.run({"worker": worker, "schema": schema}[action](address))
