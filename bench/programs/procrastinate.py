"""Procrastinate, asynchronous worker.

python -m bench.programs.procrastinate schema|client|worker URL
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import procrastinate

from bench.board import body
from bench.programs.asking import chunks, serve

CONCURRENCY = 30


def application(url: str, **pool: int) -> tuple[procrastinate.App, Any]:
    connector: Any
    if pool:
        connector = procrastinate.PsycopgConnector(conninfo=url, **pool)
    else:
        connector = procrastinate.SyncPsycopgConnector(conninfo=url)
    app = procrastinate.App(connector=connector)

    @app.task(name="noop", queue="default")
    async def noop(n: int) -> dict[str, int]:
        return body(n)

    return app, noop


async def worker(url: str) -> None:
    app, _ = application(url, min_size=2, max_size=CONCURRENCY + 2)
    async with app.open_async():
        await app.run_worker_async(concurrency=CONCURRENCY)


async def schema(url: str) -> None:
    app, _ = application(url, min_size=1, max_size=2)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


def client(url: str) -> None:
    app, noop = application(url)

    def one(first: int, count: int) -> None:
        for number in range(first, first + count):
            noop.defer(n=number)

    def bulk(first: int, count: int) -> None:
        for chunk in chunks(first, count):
            noop.batch_defer(*({"n": number} for number in chunk))

    with app.open():
        serve(one, bulk)


if __name__ == "__main__":
    action, address = sys.argv[1:3]
    if action == "client":
        client(address)
    else:
        asyncio.run({"worker": worker, "schema": schema}[action](address))
