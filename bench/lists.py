"""How long each filter of a list takes with a million runs: `python -m bench.lists`.

The runs lie in four months. Each filter is asked with a value that is common, rare, common but only at the far end, and
absent, in every combination with the others. A page is what one request answers; a short one says where to go on.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

import psycopg

from holdfast import ops
from holdfast.drivers import psycopg as driver
from holdfast.embedded import ensure_running, stop_if_unused
from holdfast.schema import migrate

MONTHS = 4
GOAL = 0.150
# Numbers count from the oldest run. What is far lies in the oldest tenth, and nowhere else.
_NUMBERED = """
create temporary table numbered as
select g, 'epoch'::timestamptz + ms * interval '1 millisecond' as at,
       (lpad(to_hex(ms), 12, '0') || '7' || lpad(to_hex(g %% 4096), 3, '0') || '8'
        || substr(md5(g::text), 1, 15))::uuid as id,
       case when g %% (%(runs)s / 5) = 7 then 'rare' when g < %(runs)s / 10 and g %% 2 = 0 then 'far'
            when g %% 3 = 0 then 'second' else 'common' end as queue,
       case when g %% (%(runs)s / 5) = 9 then 'rare' when g < %(runs)s / 10 and g %% 5 = 0 then 'far'
            when g %% 2 = 0 then 'second' else 'common' end as task,
       case when g %% (%(runs)s / 5) = 11 then array['rare', 'common']
            when g < %(runs)s / 10 and g %% 4 = 0 then array['far']
            when g %% 3 = 0 then array['common', 'of ' || g %% 1000] end as tags,
       case when g %% 5 = 0 then 'ready' when g %% 100 = 1 then 'waiting' when g %% 10000 = 2 then 'leases'
            when g %% 20 = 3 then 'FAILED' when g %% 1000 = 4 then 'CANCELLED' else 'SUCCEEDED' end as place
from (select g, (extract(epoch from date_trunc('month', now(), 'UTC')) * 1000)::bigint
                + g * (interval_ms / %(runs)s) as ms
      from generate_series(0, %(runs)s - 1) as g,
           (select (extract(epoch from date_trunc('month', now(), 'UTC') + %(months)s * interval '1 month'
                            - date_trunc('month', now(), 'UTC')) * 1000)::bigint as interval_ms) as span) as series
"""
_FILL = (
    """
    insert into holdfast.runs (id, created_at, priority, payload_hash, task, queue, parameters, tags)
    select id, at, 0, sha256(g::text::bytea), task, queue,
           ('{"n":' || g || ',"filler":"' || repeat('x', 80) || '"}')::json, tags from numbered order by g
    """,
    """
    insert into holdfast.ready (run_id, rank_at, number, ord, queue)
    select id, at, 1, 0, queue from numbered where place = 'ready' order by g
    """,
    """
    insert into holdfast.waiting (run_id, due_at, number, ord, queue, reason)
    select id, at + interval '10 years', 1, 0, queue, 'scheduled' from numbered where place = 'waiting' order by g
    """,
    """
    insert into holdfast.leases (run_id, worker_id, claimed_at, number)
    select id, '01900000-0000-7000-8000-000000000001', at, 1 from numbered where place = 'leases' order by g
    """,
    """
    insert into holdfast.attempts (run_id, worker_id, claimed_at, started_at, finished_at, number, status, outcome,
                                   result)
    select id, '01900000-0000-7000-8000-000000000001', at, at, at, 1, place, place,
           case when place = 'SUCCEEDED' then '1'::json end
    from numbered where place in ('SUCCEEDED', 'FAILED', 'CANCELLED') order by g
    """,
)
STATUSES = (None, "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED")
VALUES = (None, "common", "rare", "far", "absent")


def fill(url: str, runs: int) -> None:
    """Make the runs inside the server, past the guards."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "select holdfast.make_partitions(date_trunc('month', now(), 'UTC') + %s * interval '1 month')", [MONTHS]
        )
        connection.execute("set session_replication_role = replica")
        connection.execute("set synchronous_commit = off")
        connection.execute(_NUMBERED, {"runs": runs, "months": MONTHS})
        for statement in _FILL:
            connection.execute(statement)
        connection.execute("vacuum (analyze)")


def questions() -> Iterator[dict[str, Any]]:
    for status, queue, task, tag in itertools.product(STATUSES, VALUES, VALUES, VALUES):
        yield {"status": status, "queue": queue, "task": task, "tag": tag}


def asked(connection: psycopg.Connection[Any], question: dict[str, Any], rounds: int) -> tuple[float, ops.Page[Any]]:
    """The middle of several tries, and the page."""
    took = []
    for _ in range(rounds):
        began = perf_counter()
        page = driver.transact(connection, lambda: ops.list_runs(**question))
        took.append(perf_counter() - began)
    return statistics.median(took), page


def measure(url: str, rounds: int, show: Callable[[str], None] = print) -> float:
    """Ask everything; returns the longest time."""
    worst = 0.0
    slow: list[tuple[float, dict[str, Any], ops.Page[Any]]] = []
    short = asked_in_all = 0
    with psycopg.connect(url, autocommit=True) as connection:
        for question in questions():
            took, page = asked(connection, question, rounds)
            worst = max(worst, took)
            asked_in_all += 1
            is_short = len(page) < 50 and page.next_cursor is not None
            short += is_short
            given = {name: value for name, value in question.items() if value is not None}
            if len(given) <= 1:
                show(f"{_written(given):40s} {took * 1000:8.1f} ms  {_length(page)}")
            else:
                slow.append((took, given, page))
    show("the slowest combinations:")
    for took, given, page in sorted(slow, key=lambda one: -one[0])[:12]:
        show(f"{_written(given):60s} {took * 1000:8.1f} ms  {_length(page)}")
    show(f"{asked_in_all} questions, {short} with a short page, the slowest {worst * 1000:.1f} ms")
    return worst


def _written(given: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in given.items()) or "everything"


def _length(page: ops.Page[Any]) -> str:
    return f"{len(page)} runs" + (", and more" if page.next_cursor else "")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.lists", description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=1, help="tries of each question")
    parser.add_argument("--url", help="an empty database; an embedded server of its own if not given")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-lists-") as directory:
        Path(directory).chmod(0o711)
        home = Path(directory) / "home"
        url = options.url or ensure_running(home, durable=False).url
        try:
            migrate.upgrade(url)
            began = perf_counter()
            fill(url, options.runs)
            print(f"{options.runs} runs in {urlsplit(url).path[1:]}, made in {perf_counter() - began:.0f} s")
            return int(measure(url, options.rounds) > GOAL)
        finally:
            stop_if_unused(home)


if __name__ == "__main__":
    raise SystemExit(main())
