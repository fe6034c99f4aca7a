"""The contender of `bench.ray`: Ray without Holdfast, doing the same calls and the same number of database writes.

python -m bench.ray_bare drain GCS_ADDRESS DATABASE_URL RUNS BATCH ACTORS MILLISECONDS   prints runs per second
python -m bench.ray_bare job NUMBER   is the entrypoint of one job
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

import psycopg

# A Holdfast job writes this often: it registers, takes the lease over, writes the result, and deregisters.
WRITES_PER_JOB = 4


def make_table(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "create table bench_bare (number bigint, result text, at timestamptz default clock_timestamp())"
        )


class Adder:
    """An actor that does a batch of calls. Like those of Holdfast, it gets and gives JSON."""

    async def add_all(self, data: bytes) -> bytes:
        import orjson

        from bench.ray_tasks import add_one

        return orjson.dumps([add_one(**orjson.loads(text)) for text in orjson.loads(data)])


async def drain(url: str, runs: int, batch: int, actors: int, milliseconds: float) -> float:
    import orjson
    import ray

    options = {"num_cpus": 0, "max_task_retries": 0}
    made: list[Any] = [ray.remote(Adder).options(**options).remote() for _ in range(actors)]
    warm = orjson.dumps(['{"number":1}'])
    for actor in made:
        await actor.add_all.remote(warm)
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    lock = asyncio.Lock()
    left = list(range(runs))
    began = time.monotonic()

    async def serve(actor: Any) -> None:
        while left:
            numbers, left[:] = left[:batch], left[batch:]
            texts = [f'{{"milliseconds":{milliseconds},"number":{number}}}' for number in numbers]
            data = orjson.dumps(texts)
            results = orjson.loads(await actor.add_all.remote(data))
            async with lock:
                await connection.execute(
                    "insert into bench_bare (number, result) select * from unnest(%s::bigint[], %s::text[])",
                    [numbers, [str(result) for result in results]],
                )

    await asyncio.gather(*map(serve, made))
    seconds = time.monotonic() - began
    await connection.close()
    return runs / seconds


def job(url: str, number: int) -> None:
    from bench.ray_tasks import add_one

    result = add_one(number)
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(WRITES_PER_JOB):
            connection.execute("insert into bench_bare (number, result) values (%s, %s)", [number, str(result)])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["job", number]:
            job(os.environ["HOLDFAST_DATABASE_URL"], int(number))
        case ["drain", address, url, runs, batch, actors, milliseconds]:
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
            import ray

            ray.init(address=address, log_to_driver=False, configure_logging=False)
            print(asyncio.run(drain(url, int(runs), int(batch), int(actors), float(milliseconds))))
