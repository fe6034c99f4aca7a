"""Leases: the right of one attempt to write. Every statement that ends an attempt deletes its lease or does nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import orjson

from holdfast.domain.values import RELEASED, Acknowledgement, AttemptRef, Settlement
from holdfast.sql.statement import (
    Row,
    Rows,
    Statement,
    count,
    each,
    first,
    id_array,
    plain_array,
    seconds_array,
    text_array,
)

# The two fences: a worker must hold the lease and be alive to end an attempt; a rescue requires that it has expired.
HELD = """
        and leases.worker_id = %(worker_id)s::uuid
        and exists (select from holdfast.workers
                    where workers.id = %(worker_id)s::uuid and workers.expires_at > holdfast.now())
"""
# After waiting for a take-over, Postgres checks the changed lease against the workers that it read before the wait, so
# `not exists` alone would find no row for the new holder and treat it as dead. The list of holders is compared with the
# changed lease.
_ORPHANED = """
        and leases.worker_id = any(%(holders)s::uuid[])
        and not exists (select from holdfast.workers
                        where workers.id = leases.worker_id and workers.expires_at > holdfast.now())
"""

_SUCCEED = """
with given as (
    select * from unnest(%(run_ids)s::uuid[], %(numbers)s::integer[], %(results)s::text[], %(elapsed)s::float8[])
                  as given (run_id, number, result, elapsed)
), gone as (
    delete from holdfast.leases using given
    where leases.run_id = given.run_id and leases.number = given.number
"""
_SUCCEED_TAIL = """
    returning leases.run_id, leases.number, leases.worker_id, leases.claimed_at, leases.progress, leases.executor,
              leases.details,
              leases.cancel_requested_at is not null as stopped, leases.cancel_reason,
              greatest(leases.claimed_at, holdfast.now() - given.elapsed * interval '1 second') as started_at,
              given.result, leases.job_id, leases.map_id
), ended as (
    insert into holdfast.attempts (run_id, worker_id, claimed_at, started_at, finished_at, number,
                                   status, outcome, result, reason, progress, executor, details)
    select run_id, worker_id, claimed_at, started_at, holdfast.now(), number,
           case when stopped then 'CANCELLED' else 'SUCCEEDED' end,
           case when stopped then 'CANCELLED' else 'SUCCEEDED' end,
           case when stopped then null else result::json end,
           case when stopped then cancel_reason end, progress, executor, details
    from gone
), published as (
    insert into holdfast.outbox (run_id, number, type, at, data)
    select run_id, number, 'RunCompleted', holdfast.now(),
           json_build_object('status', case when stopped then 'CANCELLED' else 'SUCCEEDED' end)
    from gone where exists (select from holdfast.subscriptions)
), plain as (
    select count(*)::integer as amount from gone where not stopped and job_id is null
)
select null, amount, null, null, null from plain
union all
select run_id::text, number, case when stopped then 'CANCELLED' else 'SUCCEEDED' end, job_id::text, map_id::text
from gone where (select amount from plain) < cardinality(%(numbers)s::integer[])
"""

_SETTLE = """
with given as (
    select * from unnest(
        %(run_ids)s::uuid[], %(numbers)s::integer[], %(statuses)s::text[], %(outcomes)s::text[], %(delays)s::float8[],
        %(excuses)s::integer[], %(elapsed)s::float8[], %(results)s::text[], %(refs)s::text[], %(sizes)s::bigint[],
        %(hashes)s::text[], %(reasons)s::text[], %(errors)s::text[], %(exit_codes)s::integer[], %(executors)s::text[])
        as given (run_id, number, status, outcome, delay, excuse, elapsed, result, ref, size, hash, reason, error,
                 exit_code, executor)
), gone as (
    delete from holdfast.leases using given
    where leases.run_id = given.run_id and leases.number = given.number
"""
_SETTLE_TAIL = """
    returning leases.run_id, leases.number, leases.worker_id, leases.claimed_at, leases.progress, leases.details,
              leases.excused + given.excuse as excused, given.delay,
              case when given.elapsed is null then coalesce(leases.started_at, leases.claimed_at)
                   else greatest(leases.claimed_at, holdfast.now() - given.elapsed * interval '1 second')
                   end as started_at,
              case when leases.cancel_requested_at is not null and given.status = 'SUCCEEDED' then 'CANCELLED'
                   else given.status end as status,
              case when leases.cancel_requested_at is not null then 'CANCELLED' else given.outcome end as outcome,
              case when leases.cancel_requested_at is not null then null else given.result end as result,
              case when leases.cancel_requested_at is not null then null else given.ref end as ref,
              given.size, given.hash, given.error, given.exit_code,
              coalesce(leases.cancel_reason, given.reason) as reason,
              coalesce(given.executor, leases.executor) as executor, leases.job_id, leases.map_id
), ended as (
    insert into holdfast.attempts (run_id, worker_id, claimed_at, started_at, finished_at, number, exit_code,
                                   result_size, status, outcome, result, result_ref, result_sha256, reason, error,
                                   executor, progress, details)
    select run_id, worker_id, claimed_at, started_at, holdfast.now(), number, exit_code,
           size, status, outcome, result::json, ref, decode(hash, 'hex'), reason, error::json,
           executor, progress, details
    from gone
), again as (
    insert into holdfast.ready (run_id, rank_at, number, excused, ord, queue, job_id, map_id, task)
    select gone.run_id, coalesce(jobs.created_at, holdfast.now()), gone.number + 1, gone.excused, -runs.priority,
           runs.queue, gone.job_id, gone.map_id, runs.task
    from gone join holdfast.runs on runs.id = gone.run_id left join holdfast.jobs on jobs.id = gone.job_id
    where gone.outcome is null and gone.delay <= 0
), later as (
    insert into holdfast.waiting (run_id, due_at, rank_at, number, excused, ord, queue, reason, job_id, map_id, task)
    select gone.run_id, holdfast.now() + gone.delay * interval '1 second', jobs.created_at, gone.number + 1,
           gone.excused, -runs.priority, runs.queue,
           case when gone.reason = 'postponed' then gone.reason else 'retry' end, gone.job_id, gone.map_id, runs.task
    from gone join holdfast.runs on runs.id = gone.run_id left join holdfast.jobs on jobs.id = gone.job_id
    where gone.outcome is null and gone.delay > 0
), published as (
    insert into holdfast.outbox (run_id, number, type, at, data)
    select run_id, number, 'RunCompleted', holdfast.now(), json_build_object('status', outcome)
    from gone where outcome is not null and exists (select from holdfast.subscriptions)
)
select run_id::text, number, status, outcome, job_id::text, map_id::text,
       greatest(0, extract(epoch from holdfast.now() - started_at))::float8
from gone
"""


def _acknowledgement(row: Row) -> Acknowledgement:
    return Acknowledgement(AttemptRef(row[0], row[1]), True, *row[2:])


def _succeeded(ref: AttemptRef, status: str, job_id: str | None = None, map_id: str | None = None) -> Acknowledgement:
    # Built directly as a tuple, because this is done for every run.
    return tuple.__new__(Acknowledgement, (ref, True, status, status, job_id, map_id, 0.0))


def succeed(worker_id: str, settlements: Sequence[Settlement]) -> Statement[list[Acknowledgement]]:
    """End successful attempts with inline results: the common case of `settle`.

    It has the fewest parameters, and if all attempts succeeded and none is part of a job, it returns only their number.
    """

    def decode(found: Rows) -> list[Acknowledgement]:
        (_, plain, *_), *others = found
        if plain == len(settlements):
            return [_succeeded(s.ref, "SUCCEEDED") for s in settlements]
        return [_succeeded(AttemptRef(run_id, number), *row) for run_id, number, *row in others]

    return Statement(
        _SUCCEED + HELD + _SUCCEED_TAIL,
        {
            "worker_id": worker_id,
            "run_ids": id_array([s.ref.run_id for s in settlements]),
            "numbers": plain_array([s.ref.number for s in settlements]),
            "results": text_array([s.result for s in settlements]),
            "elapsed": seconds_array([s.elapsed for s in settlements]),
        },
        decode,
        together=True,
    )


def settle(worker_id: str, settlements: Sequence[Settlement]) -> Statement[list[Acknowledgement]]:
    """End attempts with any outcome. A run to be retried becomes ready, or waits for its next attempt."""
    return Statement(
        _SETTLE + HELD + _SETTLE_TAIL,
        {"worker_id": worker_id} | _arrays(settlements),
        each(_acknowledgement),
        together=True,
    )


_RELEASE = """
with given as (
    select * from unnest(%(run_ids)s::uuid[], %(numbers)s::integer[], %(ranks)s::timestamptz[])
                  as given (run_id, number, rank_at)
), gone as (
    delete from holdfast.leases using given
    where leases.run_id = given.run_id and leases.number = given.number and leases.cancel_requested_at is null
"""
_RELEASE_TAIL = """
    returning leases.run_id, leases.number, leases.excused, leases.job_id, leases.map_id,
              coalesce(given.rank_at, leases.claimed_at) as rank_at
), back as (
    insert into holdfast.ready (run_id, rank_at, number, excused, ord, queue, job_id, map_id, task)
    select gone.run_id, gone.rank_at, gone.number, gone.excused, -runs.priority, runs.queue, gone.job_id, gone.map_id,
           runs.task
    from gone join holdfast.runs on runs.id = gone.run_id
    returning run_id, number, queue
)
select run_id::text, number, queue from back
"""
# If a worker settled every claim that it received, its remaining leases belong to attempts that never started.
_NOT_STARTED = """
        and exists (select from holdfast.workers
                    where workers.id = leases.worker_id and workers.settled_at is not null)
"""


class Released(NamedTuple):
    """A claim that was released before the attempt started: its run is ready again in this queue."""

    run_id: str
    number: int
    queue: str

    @property
    def ack(self) -> Acknowledgement:
        return Acknowledgement(AttemptRef(self.run_id, self.number), True, RELEASED, None)


def release(worker_id: str, settlements: Sequence[Settlement]) -> Statement[list[Released]]:
    """Release claims whose attempts never started: each run is ready again, with the same attempt number.

    A run whose cancellation was requested stays leased; it has to be settled.
    """
    return Statement(
        _RELEASE + HELD + _RELEASE_TAIL,
        {"worker_id": worker_id} | _returned(settlements),
        each(Released._make),
        together=True,
    )


def release_orphans(settlements: Sequence[Settlement], holders: Sequence[str]) -> Statement[list[Released]]:
    """Return runs that these workers held and never started to the ready table."""
    return Statement(
        _RELEASE + _ORPHANED + _NOT_STARTED + _RELEASE_TAIL,
        {"holders": plain_array(holders)} | _returned(settlements),
        each(Released._make),
        together=True,
    )


def _returned(settlements: Sequence[Settlement]) -> dict[str, object]:
    return {
        "run_ids": id_array([s.ref.run_id for s in settlements]),
        "numbers": plain_array([s.ref.number for s in settlements]),
        "ranks": text_array([s.rank_at for s in settlements]),
    }


def settle_orphans(settlements: Sequence[Settlement], holders: Sequence[str]) -> Statement[list[Acknowledgement]]:
    """End attempts of these workers, whose leases have expired."""
    parameters = {"holders": plain_array(holders)} | _arrays(settlements)
    return Statement(_SETTLE + _ORPHANED + _SETTLE_TAIL, parameters, each(_acknowledgement), together=True)


def _arrays(settlements: Sequence[Settlement]) -> dict[str, object]:
    return {
        "run_ids": id_array([s.ref.run_id for s in settlements]),
        "numbers": plain_array([s.ref.number for s in settlements]),
        "statuses": plain_array([s.status for s in settlements]),
        "outcomes": plain_array([s.outcome for s in settlements]),
        "delays": plain_array([s.delay for s in settlements]),
        "excuses": plain_array([int(s.excuse) for s in settlements]),
        "elapsed": seconds_array([s.elapsed for s in settlements]),
        "results": text_array([s.result for s in settlements]),
        "refs": text_array([s.stored.ref if s.stored else None for s in settlements]),
        "sizes": plain_array([s.stored.size if s.stored else None for s in settlements]),
        "hashes": plain_array([s.stored.sha256 if s.stored else None for s in settlements]),
        "reasons": text_array([s.reason for s in settlements]),
        "errors": text_array([orjson.dumps(s.error).decode() if s.error else None for s in settlements]),
        "exit_codes": plain_array([s.exit_code for s in settlements]),
        "executors": text_array([s.executor for s in settlements]),
    }


def request_stop(run_id: str, reason: str) -> Statement[int]:
    """Request that the running attempt stops. From now on, the run can only end CANCELLED."""
    return Statement(
        """
        with requested as (
            update holdfast.leases
            set cancel_requested_at = coalesce(cancel_requested_at, holdfast.now()),
                cancel_reason = coalesce(cancel_reason, %(reason)s)
            where run_id = %(run_id)s::uuid
            returning run_id
        )
        select count(*) from requested
        """,
        {"run_id": run_id, "reason": reason},
        count,
        together=True,
    )


def hold(ref: AttemptRef) -> Statement[bool | None]:
    """Lock the lease of an attempt. Return whether its cancellation was requested, or None if it has no valid lease."""
    return Statement(
        """
        select leases.cancel_requested_at is not null from holdfast.leases
        where leases.run_id = %(run_id)s::uuid and leases.number = %(number)s
          and exists (select from holdfast.workers
                      where workers.id = leases.worker_id and workers.expires_at > holdfast.now())
        for key share of leases
        """,
        {"run_id": ref.run_id, "number": ref.number},
        first(lambda row: bool(row[0])),
        together=True,
    )


def stops(worker_id: str) -> Statement[list[AttemptRef]]:
    """Return the attempts of this worker whose cancellation was requested."""
    return Statement(
        """
        select run_id::text, number from holdfast.leases
        where worker_id = %(worker_id)s::uuid and cancel_requested_at is not null
        """,
        {"worker_id": worker_id},
        each(AttemptRef._make),
    )


def held(worker_id: str) -> Statement[list[AttemptRef]]:
    """Return all leases of this worker, including claims whose response it never received."""
    return Statement(
        "select run_id::text, number from holdfast.leases where worker_id = %(worker_id)s::uuid",
        {"worker_id": worker_id},
        each(AttemptRef._make),
    )


def progress(worker_id: str, reports: Sequence[tuple[AttemptRef, str]]) -> Statement[list[AttemptRef]]:
    """Store the progress of attempts, and return those that were stored.

    Attempts that lost their lease are left out, and so are leases that another transaction has locked.
    """
    return Statement(
        """
        with given as (
            select * from unnest(%(run_ids)s::uuid[], %(numbers)s::integer[], %(reports)s::text[])
                          as given (run_id, number, report)
        ), free as (
            select leases.run_id, given.report from given join holdfast.leases
                on leases.run_id = given.run_id and leases.number = given.number
        """
        + HELD
        + """
            order by leases.run_id for no key update of leases skip locked
        ), noted as (
            update holdfast.leases set progress = free.report::json from free
            where leases.run_id = free.run_id
            returning leases.run_id, leases.number
        )
        select run_id::text, number from noted
        """,
        {
            "worker_id": worker_id,
            "run_ids": plain_array([ref.run_id for ref, _ in reports]),
            "numbers": plain_array([ref.number for ref, _ in reports]),
            "reports": text_array([report for _, report in reports]),
        },
        each(AttemptRef._make),
    )
