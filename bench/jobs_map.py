"""100,000 mapped runs of one job, compared with as many independent runs.

    python -m bench.jobs_map [--runs 100000] [--rounds 3] [--workers 1]

Creation: the map's one transaction against a bulk insert of as many rows, in one transaction too, into a table with the
columns and indexes of `runs`; and against `submit_many`. Drain: from the first claim to the last ending, join included,
read off the rows; rounds alternate. Runs on a server of its own unless HOLDFAST_DATABASE_URL names one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from bench import jobs_tasks
from holdfast import Client, Settings
from holdfast.domain.canonical import canonicalize
from holdfast.domain.ids import new_ids
from holdfast.embedded import ensure_running
from holdfast.jobs import Jobs
from holdfast.schema.migrate import upgrade
from holdfast.sql.statement import plain_array, text_array

AT_ONCE = 10_000


@contextlib.contextmanager
def server() -> Iterator[str]:
    given = os.environ.get("HOLDFAST_DATABASE_URL")
    if given:
        yield given
        return
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o711)
        with ensure_running(Path(directory) / "home") as running:
            yield running.url.replace("/holdfast?", "/postgres?")


@contextlib.contextmanager
def database(server_url: str) -> Iterator[str]:
    name = f"hf_bench_jobs_{os.getpid()}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        try:
            url = psycopg.conninfo.make_conninfo(server_url, dbname=name)
            upgrade(url)
            yield url
        finally:
            connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def bulk_insert(url: str, runs: int) -> float:
    """Seconds for a plain bulk insert of as many rows as the map makes."""
    ids = new_ids(runs)
    made = [canonicalize({"view": {"$view": {"offset": n, "range": [n, n + 1, 1]}}}) for n in range(runs)]
    with psycopg.connect(url) as connection:
        connection.execute("create table compared (like holdfast.runs including defaults including indexes)")
        connection.commit()
        began = time.perf_counter()
        for at in range(0, runs, AT_ONCE):
            connection.execute(
                """
                insert into compared (id, created_at, payload_hash, task, queue, parameters)
                select id, now(), decode(hash, 'hex'), 'bench.slice', 'default', text::json
                from unnest(%s::uuid[], %s::text[], %s::text[]) as given (id, text, hash)
                """,
                [
                    plain_array(ids[at : at + AT_ONCE]),
                    text_array([text for text, _ in made[at : at + AT_ONCE]]),
                    plain_array([hash_ for _, hash_ in made[at : at + AT_ONCE]]),
                ],
            )
        connection.commit()
        return time.perf_counter() - began


def drain(url: str, workers: int) -> None:
    """Run workers until nothing is left."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    environment |= {"HOLDFAST_DATABASE_URL": url, "HOLDFAST_TASKS": "bench.jobs_tasks", "HOLDFAST_LOG_LEVEL": "error"}
    command = [sys.executable, "-m", "holdfast", "worker", "--executor", "inline", "--until-empty"]
    started = [subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) for _ in range(workers)]
    for process in started:
        if process.wait():
            raise SystemExit("a worker failed")


def seconds_of(url: str) -> tuple[float, int]:
    """From the first claim to the last ending, and how many runs succeeded."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            """
            select extract(epoch from max(finished_at) - min(claimed_at))::float8,
                   count(*) filter (where outcome = 'SUCCEEDED')
            from holdfast.attempts
            """
        ).fetchone()
    assert found is not None
    return found


def alone(server_url: str, runs: int, workers: int) -> dict[str, float]:
    with database(server_url) as url:
        with Client(Settings(database_url=url)) as client:
            began = time.perf_counter()
            client.submit_many(jobs_tasks.alone, [{"n": n} for n in range(runs)])
            made = time.perf_counter() - began
        drain(url, workers)
        seconds, succeeded = seconds_of(url)
        assert succeeded == runs, succeeded
        return {"submit_many": made, "rate": runs / seconds, "whole": made + seconds}


def mapped(server_url: str, runs: int, workers: int) -> dict[str, float]:
    with database(server_url) as url:
        plain = bulk_insert(url, runs)
        with Client(Settings(database_url=url)) as client:
            jobs = Jobs(client)
            began = time.perf_counter()
            handle = jobs.map(jobs_tasks.slice_, range(runs), chunk_size=1)
            made = time.perf_counter() - began
            join = jobs.collect(handle, into=jobs_tasks.join)
            drain(url, workers)
            job: Any = jobs.get_job(handle.job_id)
            assert (job.status, job.completed_tasks, job.total_tasks) == ("SUCCEEDED", runs + 1, runs + 1), job
            found = jobs.get_task(join)
            assert found.result() == {"count": runs, "sum": runs * (runs - 1) // 2}, found.result()
            assert found.retry_count == 0
        seconds, succeeded = seconds_of(url)
        assert succeeded == runs + 1, succeeded
        return {"bulk insert": plain, "map": made, "rate": (runs + 1) / seconds, "whole": made + seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    separate, together = [], []
    with server() as url:
        for number in range(options.rounds):
            for measure, into in [(alone, separate), (mapped, together)][:: 1 if number % 2 == 0 else -1]:
                into.append(measure(url, options.runs, options.workers))
                print(measure.__name__, {name: round(value, 2) for name, value in into[-1].items()}, flush=True)

    def median(found: list[dict[str, float]], name: str) -> float:
        return statistics.median(one[name] for one in found)

    creation = median(together, "map") / median(together, "bulk insert")
    rate = median(together, "rate") / median(separate, "rate")
    whole = median(separate, "whole") / median(together, "whole")
    print(f"creation: {creation:.2f} of a bulk insert (at most 3), {median(together, 'map'):.2f} s")
    print(f"          {median(together, 'map') / median(separate, 'submit_many'):.2f} of submit_many")
    print(f"drain:    {rate:.2f} of independent runs, {median(together, 'rate'):.0f} runs/s")
    print(f"whole:    {whole:.2f} of independent runs, from the first call to the last ending (at least 0.7)")
    raise SystemExit(creation > 3 or whole < 0.7)


if __name__ == "__main__":
    main()
