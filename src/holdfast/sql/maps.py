"""Maps: one row for all runs created from one dataset, so that dependents wait for a single row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import timedelta

import orjson

from holdfast.domain.jobs import Ended, MapRecord, NewMap, Slice
from holdfast.domain.values import NewRun
from holdfast.sql.statement import Rows, Statement, count, each, first, plain_array, rows, text_array


def insert(new: NewMap, task: str) -> Statement[int]:
    """Insert a map. Return 0 if it already exists."""
    return Statement(
        """
        insert into holdfast.maps (id, job_id, parent_id, created_at, total, open, task, dataset)
        values (%(id)s::uuid, %(job_id)s::uuid, %(parent_id)s::uuid, holdfast.now(), %(total)s, %(total)s, %(task)s,
                %(dataset)s::json)
        on conflict (id) do nothing returning id
        """,
        asdict(new) | {"task": task},
        len,
        together=True,
    )


def insert_runs(head: NewRun, ids: Sequence[str], slices: Sequence[Slice]) -> Statement[int]:
    """Insert the runs of a map: each has the parameters of its slice, and everything else from `head`."""
    delayed = isinstance(head.run_after, timedelta)
    return Statement(
        """
        with job as (
            select created_at from holdfast.jobs where id = %(job_id)s::uuid
        ), made as (
            insert into holdfast.runs (id, created_at, run_after, job_id, parent_id, map_id, priority, payload_hash,
                                       task, queue, parameters, policy, tags, submitted_by, traceparent, deduplicates)
            select given.id, holdfast.now(), coalesce(%(run_at)s::timestamptz, holdfast.now() + %(run_in)s::interval),
                   %(job_id)s::uuid, %(parent_id)s::uuid, %(map_id)s::uuid,
                   %(priority)s::smallint, decode(given.payload_hash, 'hex'), %(task)s, %(queue)s,
                   given.parameters::json, %(policy)s::json, %(tags)s::text[], %(submitted_by)s, %(traceparent)s,
                   false
            from unnest(%(ids)s::uuid[], %(parameters)s::text[], %(payload_hashes)s::text[])
                 as given (id, parameters, payload_hash)
            returning id, run_after
        ), queued as (
            insert into holdfast.ready (run_id, rank_at, number, ord, queue, job_id, map_id, task)
            select made.id, job.created_at, 1, -%(priority)s::smallint, %(queue)s, %(job_id)s::uuid, %(map_id)s::uuid,
                   %(task)s
            from made, job where coalesce(made.run_after <= holdfast.now(), true)
        ), put_off as (
            insert into holdfast.waiting (run_id, due_at, rank_at, number, ord, queue, reason, job_id, map_id, task)
            select made.id, made.run_after, job.created_at, 1, -%(priority)s::smallint, %(queue)s, 'scheduled',
                   %(job_id)s::uuid, %(map_id)s::uuid, %(task)s
            from made, job where made.run_after > holdfast.now()
        ), counted as (
            insert into holdfast.tallies (task, kind, amount) select %(task)s, 'created', count(*) from made
        )
        select count(*) from made
        """,
        {
            **{one.name: getattr(head, one.name) for one in fields(head)},
            "ids": plain_array(ids),
            "parameters": text_array([parameters for parameters, _ in slices]),
            "payload_hashes": plain_array([payload_hash for _, payload_hash in slices]),
            "run_at": None if delayed else head.run_after,
            "run_in": head.run_after if delayed else None,
            "tags": text_array(head.tags) if head.tags else None,
        },
        count,
        together=True,
    )


def settle(moves: Mapping[str, tuple[int, int]]) -> Statement[list[Ended]]:
    """Count ended runs by map: (ended, of those unsuccessful). Return the maps that ended."""
    ids = sorted(moves)
    return Statement(
        """
        with held as (
            select id from holdfast.maps where id = any(%(ids)s::uuid[]) order by id for update
        ), moved as (
            update holdfast.maps
            set open = maps.open - given.ended, unsuccessful = maps.unsuccessful + given.unsuccessful
            from unnest(%(ids)s::uuid[], %(ended)s::integer[], %(unsuccessful)s::integer[])
                 as given (id, ended, unsuccessful)
            join held on held.id = given.id
            where maps.id = given.id
            returning maps.id, maps.open, maps.unsuccessful
        )
        select id::text, case when unsuccessful > 0 then 'FAILED' else 'SUCCEEDED' end from moved where open = 0
        """,
        {
            "ids": plain_array(ids),
            "ended": plain_array([moves[id_][0] for id_ in ids]),
            "unsuccessful": plain_array([moves[id_][1] for id_ in ids]),
        },
        each(lambda row: Ended(row[0], row[1])),
        together=True,
    )


def unsettle(moves: Mapping[str, int]) -> Statement[list[str]]:
    """Count reopened runs by map; none of them had succeeded. Return the maps that are open again."""
    ids = sorted(moves)
    return Statement(
        """
        with held as (
            select id, open from holdfast.maps where id = any(%(ids)s::uuid[]) order by id for update
        ), moved as (
            update holdfast.maps
            set open = maps.open + given.reopened, unsuccessful = maps.unsuccessful - given.reopened
            from unnest(%(ids)s::uuid[], %(reopened)s::integer[]) as given (id, reopened)
            where maps.id = given.id and maps.id in (select id from held)
        )
        select id::text from held where open = 0
        """,
        {"ids": plain_array(ids), "reopened": plain_array([moves[id_] for id_ in ids])},
        each(lambda row: str(row[0])),
        together=True,
    )


def read(map_id: str) -> Statement[MapRecord | None]:
    return Statement(
        """
        select id::text, job_id::text, parent_id::text, created_at, total, open, unsuccessful, task, dataset::text
        from holdfast.maps where id = %(map_id)s::uuid
        """,
        {"map_id": map_id},
        first(lambda row: MapRecord._make((*row[:8], orjson.loads(row[8])))),
    )


def results(run_ids: Sequence[str]) -> Statement[Rows]:
    """Return where the results of these runs are, ordered by id: id, text, ref, size, sha256."""
    return Statement(
        """
        select run_id::text, result::text, result_ref, result_size, encode(result_sha256, 'hex')
        from holdfast.attempts where run_id = any(%(run_ids)s::uuid[]) and outcome = 'SUCCEEDED' order by run_id
        """,
        {"run_ids": plain_array(run_ids)},
        rows,
    )
