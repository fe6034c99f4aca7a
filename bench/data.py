"""Data sets made inside the server, row for row as the engine would have written them, only faster.

Guards are passed by, and what has no order is indexed afterwards; ids are those of runs submitted at even intervals.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg

from bench.contenders import Holdfast

STEP = 500_000

# Ids and times of runs numbered `first` to `first + count - 1`, spread over the time between two instants.
_SERIES = """
    select g as number, ('epoch'::timestamptz + ms * interval '1 millisecond') as at,
           (lpad(to_hex(ms), 12, '0') || '7' || lpad(to_hex(g %% 4096), 3, '0') || '8'
            || substr(md5(g::text), 1, 15))::uuid as id
    from (select g, (extract(epoch from %(since)s::timestamptz) * 1000)::bigint
                    + (g - %(start)s) * %(span)s / %(count)s as ms
          from generate_series(%(from)s::bigint, %(upto)s::bigint) as g) as numbered
"""
_RUNS = f"""
    insert into holdfast.runs (id, created_at, priority, payload_hash, task, queue, parameters)
    select id, at, 0, sha256(parameters::bytea), 'bench_noop', 'default', parameters::json
    from (select id, at, '{{"n":' || number || coalesce(',"filler":"' || %(filler)s || '"', '') || '}}' as parameters
          from ({_SERIES}) as series) as made
"""
_READY = f"""
    insert into holdfast.ready (run_id, rank_at, number, ord, queue, task)
    select id, at, 1, 0, 'default', 'bench_noop' from ({_SERIES}) as series
"""
_ATTEMPTS = f"""
    insert into holdfast.attempts (run_id, worker_id, claimed_at, started_at, finished_at, number, status,
                                   outcome, result)
    select id, '01900000-0000-7000-8000-000000000001', at + interval '1 second', at + interval '1 second',
           at + interval '3 seconds', 1, 'SUCCEEDED', 'SUCCEEDED', ('{{"ok":' || number || '}}')::json
    from ({_SERIES}) as series
"""


def pending(contender: Holdfast, count: int, first: int = 0) -> None:
    """Runs that wait, numbered from `first`."""
    _fill(contender, [_RUNS, _READY], count, first, "now() - interval '1 minute'", 50_000, None)


def history(contender: Holdfast, count: int) -> None:
    """Runs that have ended, with parameters and results of ordinary size, made since the month began."""
    since = "greatest(date_trunc('month', now(), 'UTC'), now() - interval '10 days')"
    found = contender.sql(f"select (extract(epoch from now() - interval '1 minute' - {since}) * 1000)::bigint")
    span = max(1000, int(found[0][0]))
    filler = "scenario high_inflation, region AU, horizon 24 months, weights 0.25 0.5 0.25"
    _fill(contender, [_RUNS, _ATTEMPTS], count, 0, since, span, filler)


def _fill(
    contender: Holdfast, statements: list[str], count: int, first: int, since: str, span: int, filler: str | None
) -> None:
    shared = {
        "since": contender.sql(f"select {since}")[0][0],
        "span": span,
        "count": count,
        "start": first,
        "filler": filler,
    }
    with psycopg.connect(contender.url, autocommit=True) as connection:
        connection.execute("set session_replication_role = replica")
        connection.execute("set synchronous_commit = off")
        connection.execute("set maintenance_work_mem = '256MB'")
        with _unindexed(connection) if count > STEP else contextlib.nullcontext():
            for start in range(first, first + count, STEP):
                part = {"from": start, "upto": min(start + STEP, first + count) - 1}
                for statement in statements:
                    connection.execute(statement, shared | part)
        connection.execute("vacuum (analyze) holdfast.runs, holdfast.ready, holdfast.attempts")


@contextlib.contextmanager
def _unindexed(connection: psycopg.Connection[tuple[object, ...]]) -> Iterator[None]:
    """Without the index on hashes, whose entries come in no order: sorted afterwards it is made many times faster."""
    name = "runs_payload_hash"
    found = connection.execute("select indexdef from pg_indexes where indexname = %s", [name]).fetchone()
    if found is None:
        yield
        return
    connection.execute(f"drop index holdfast.{name}")
    yield
    connection.execute(str(found[0]).replace(" ONLY ", " "))
