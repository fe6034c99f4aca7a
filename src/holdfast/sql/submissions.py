"""Submissions: the one time that a run is written, together with its place in the queue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import LiteralString, NamedTuple

from holdfast.domain.values import NewRun, Payload
from holdfast.sql.statement import Rows, Statement, plain_array, text_array

_INSERT = """
    insert into holdfast.runs (id, created_at, run_after, job_id, parent_id, priority, payload_hash, task, queue,
                               parameters, policy, tags, child_key, concurrency_key, submitted_by, traceparent,
                               deduplicates)
    select given.id, holdfast.now(),
           coalesce(%(run_at)s::timestamptz, holdfast.now() + %(run_in)s::interval),
           %(job_id)s::uuid, %(parent_id)s::uuid, %(priority)s::smallint, decode(given.payload_hash, 'hex'),
           %(task)s, %(queue)s, given.parameters::json, %(policy)s::json, %(tags)s::text[], given.child_key,
           %(concurrency_key)s, %(submitted_by)s, %(traceparent)s, %(deduplicates)s
    from unnest(%(ids)s::uuid[], %(parameters)s::text[], %(payload_hashes)s::text[], %(child_keys)s::text[])
         as given (id, parameters, payload_hash, child_key)
"""

# A run that already exists is not changed. Looking for it takes a tenth of the statement's time.
_UNLESS_MADE = "on conflict (id) do nothing "

_QUEUE = """
, queued as (
    insert into holdfast.ready (run_id, rank_at, number, ord, queue, task)
    select id, coalesce(run_after, created_at), 1, -priority, queue, %(task)s from made
    where coalesce(run_after <= holdfast.now(), true)
), put_off as (
    insert into holdfast.waiting (run_id, due_at, number, ord, queue, reason, task)
    select id, run_after, 1, -priority, queue, 'scheduled', %(task)s from made
    where run_after > holdfast.now()
)"""

# The position of a job's run in its queue depends on the age of the job.
_QUEUE_BY_JOB = """
, job as (
    select created_at as rank_at from holdfast.jobs where id = %(job_id)s::uuid
), queued as (
    insert into holdfast.ready (run_id, rank_at, number, ord, queue, job_id, task)
    select id, rank_at, 1, -priority, queue, %(job_id)s::uuid, %(task)s from made, job
    where coalesce(run_after <= holdfast.now(), true)
), put_off as (
    insert into holdfast.waiting (run_id, due_at, rank_at, number, ord, queue, reason, job_id, task)
    select id, run_after, rank_at, 1, -priority, queue, 'scheduled', %(job_id)s::uuid, %(task)s from made, job
    where run_after > holdfast.now()
)"""

# At first, all dependencies of a run count as open. A later statement counts those that have already ended.
_HOLD = """
, job as (
    select (select created_at from holdfast.jobs where id = %(job_id)s::uuid) as rank_at
), put_off as (
    insert into holdfast.waiting (run_id, due_at, rank_at, blockers, number, ord, queue, reason, job_id, task)
    select made.id, coalesce(made.run_after, made.created_at), job.rank_at, blocked.blockers, 1, -made.priority,
           made.queue, 'dependencies', %(job_id)s::uuid, %(task)s
    from made join unnest(%(ids)s::uuid[], %(blockers)s::integer[]) as blocked (id, blockers) on blocked.id = made.id
    cross join job
)"""

# Usually all runs of a batch are new. If some are not, the statement returns the ids of the runs that it created.
_COUNT = """
, counted as (
    insert into holdfast.tallies (task, kind, amount)
    select %(task)s, 'created', count(*) from made having count(*) > 0
)
select min(created_at), min(run_after), case when count(*) < %(asked)s then array(select id::text from made) end
from made
"""


class Made(NamedTuple):
    """When runs were created. `ids` lists them unless all requested runs are new; `rung` if workers were notified."""

    created_at: datetime | None
    run_after: datetime | None
    ids: Sequence[str] | None
    rung: bool = False

    def has(self, run_id: str) -> bool:
        return self.ids is None or run_id in self.ids


def _made(found: Rows) -> Made:
    if not found:
        return Made(None, None, ())
    created_at, run_after, ids, *rung = found[0]
    return Made(created_at, run_after, ids, rung not in ([], [False]))


def insert(submissions: Sequence[NewRun], *, together: bool = False) -> Statement[Made]:
    """Create runs that differ only in id, parameters, child key and dependencies; either all or none have dependencies.

    Runs that already exist are not changed.
    """
    head = submissions[0]
    payloads = [Payload(s.id, s.parameters, s.payload_hash) for s in submissions]
    if len(submissions) == 1 and is_plain(head):
        return insert_one(head, payloads[0], ring=head.ring, together=together)
    given = _given(head, payloads) | {"child_keys": text_array([s.child_key for s in submissions])}
    if head.depends_on:
        given["blockers"] = plain_array([len(s.depends_on) for s in submissions])
    return _insert(head, given, together=together, again=True)


def insert_batch(
    head: NewRun, payloads: Sequence[Payload], *, together: bool = False, again: bool = True, more: bool = False
) -> Statement[Made]:
    """Create runs that differ only in their payload. If `more` follow, they are sent before the response is read."""
    return _insert(head, _given(head, payloads), together=together, again=again, pipelined=more)


def _insert(
    head: NewRun, given: dict[str, object], *, together: bool, again: bool, pipelined: bool = False
) -> Statement[Made]:
    return Statement(
        "with made as ("
        + _INSERT
        + (_UNLESS_MADE if again else "")
        + "returning id, created_at, run_after, priority, queue)"
        + _place(head)
        + _COUNT,
        given,
        _made,
        together=together,
        pipelined=pipelined,
    )


_TAKE_KEY = """
with key as (
    insert into holdfast.idempotency_keys (scope, key, run_id, payload_hash, task, created_at, expires_at)
    values (%(scope)s, %(key)s, %(run_id)s::uuid, decode(%(payload_hash)s, 'hex'), %(task)s,
            holdfast.now(), holdfast.now() + %(key_ttl)s::interval)
    on conflict (scope, key) do nothing
    returning run_id, payload_hash, task, created_at
"""


def insert_keyed(submission: NewRun, *, together: bool = False) -> Statement[Made]:
    """Create a run together with its idempotency key, or nothing if the key is taken."""
    if is_plain(submission):
        return _insert_keyed_now(submission, together=together)
    return Statement(
        _TAKE_KEY
        + """
        ), made as ("""
        + _INSERT
        + "join key on key.run_id = given.id "
        + _UNLESS_MADE
        + "returning id, created_at, run_after, priority, queue)"
        + _place(submission)
        + _COUNT,
        _given(submission, [Payload(submission.id, submission.parameters, submission.payload_hash)])
        | {
            "child_keys": text_array([submission.child_key]),
            "blockers": plain_array([len(submission.depends_on)]),
            "scope": submission.scope,
            "key": submission.key,
            "key_ttl": submission.key_ttl,
            "run_id": submission.id,
            "payload_hash": submission.payload_hash,
        },
        _made,
        together=together,
    )


def is_plain(new: NewRun) -> bool:
    """Whether the run is due immediately, and has neither a job nor dependencies."""
    return new.run_after is None and new.job_id is None and not new.depends_on


# One run that is due immediately, the common case: this takes a third less server time. The run is counted when it
# leaves the queue.
_NOW = """
    made as (
        insert into holdfast.runs (id, created_at, payload_hash, task, parent_id, priority, queue, parameters,
                                   policy, tags, child_key, concurrency_key, submitted_by, traceparent,
                                   deduplicates)
"""
_NOW_GIVEN = """
               %(parent_id)s::uuid, %(priority)s::smallint, %(queue)s, %(parameters)s::json, %(policy)s::json,
               %(tags)s::text[], %(child_key)s, %(concurrency_key)s, %(submitted_by)s, %(traceparent)s, %(deduplicates)s
"""
_NOW_TAIL = """
        returning id, created_at, run_after, priority, queue, task
    ), queued as (
        insert into holdfast.ready (run_id, rank_at, number, ord, queue, task, counted)
        select id, created_at, 1, -priority, queue, task, false from made
    )
    select created_at, run_after, null"""
_NOW_END: LiteralString = " from made"
# Listening workers are notified when the run is committed, without another statement.
_RINGING = ", pg_notify('holdfast', queue)"
# Alternatively, the run is leased to a waiting worker instead of being queued, and only that worker is notified.
_HANDING_TAIL = """
        returning id, created_at, run_after, priority, queue, task
    ), queued as (
        insert into holdfast.ready (run_id, rank_at, number, ord, queue, task, counted)
        select id, created_at, 1, -priority, queue, task, false from made where not holdfast.hand_over(id, queue, task)
        returning run_id
    ), counted as (
        insert into holdfast.tallies (task, kind, amount)
        select task, 'created', 1 from made where not exists (select from queued)
    )
    select created_at, run_after, null, case when run_id is not null then pg_notify('holdfast', queue) end
    from made left join queued on true"""


def _tail(ring: bool, alone: bool) -> LiteralString:
    """Return the end of a statement that creates one run.

    A worker's row is locked only by a statement that is alone in its transaction: no caller can keep it locked.
    """
    if ring and alone:
        return _HANDING_TAIL
    return _NOW_TAIL + (_RINGING if ring else "") + _NOW_END


# Creates a run that is certainly new: no guard has to look for it in other tables. If it exists, the statement fails.
_NEW = """
    select holdfast.now(), null::timestamptz, null, holdfast.create_run(
               %(run_id)s::uuid, %(payload_hash)s, %(task)s, %(parent_id)s::uuid, %(priority)s::smallint, %(queue)s,
               %(parameters)s, %(policy)s, %(tags)s::text[], %(child_key)s, %(concurrency_key)s, %(submitted_by)s,
               %(traceparent)s, %(deduplicates)s::boolean, """


def _one(again: bool, ring: bool, alone: bool) -> LiteralString:
    if not again:
        return _NEW + ("true, " if ring else "false, ") + ("true)" if ring and alone else "false)")
    return (
        "with"
        + _NOW
        + "select %(run_id)s::uuid, holdfast.now(), decode(%(payload_hash)s, 'hex'), %(task)s,"
        + _NOW_GIVEN
        + _UNLESS_MADE
        + _tail(ring, alone)
    )


# By whether the run may exist, whether to ring, and whether the statement is alone in its transaction.
_ONE: dict[tuple[bool, bool, bool], LiteralString] = {
    (again, ring, alone): _one(again, ring, alone)
    for again in (False, True)
    for ring in (False, True)
    for alone in (False, True)
}


def insert_one(
    head: NewRun, payload: Payload, *, ring: bool = False, together: bool = False, again: bool = True
) -> Statement[Made]:
    """Create a run that is due immediately, from `head` and this payload; with `again`, it may already exist.

    If it rings and is not `together` with other statements, it hands the run to a waiting worker, if there is one.
    """
    return Statement(_ONE[again, ring, not together], _given_now(head, payload), _made, together)


# By whether to ring, and whether the statement is alone in its transaction.
_ONE_KEYED: dict[tuple[bool, bool], LiteralString] = {
    (ring, alone): _TAKE_KEY
    + "),"
    + _NOW
    + "select run_id, created_at, payload_hash, task,"
    + _NOW_GIVEN
    + "from key "
    + _UNLESS_MADE
    + _tail(ring, alone)
    for ring in (False, True)
    for alone in (False, True)
}


def _insert_keyed_now(new: NewRun, *, together: bool) -> Statement[Made]:
    given = _given_now(new, Payload(new.id, new.parameters, new.payload_hash))
    given |= {"scope": new.scope, "key": new.key, "key_ttl": new.key_ttl}
    return Statement(_ONE_KEYED[new.ring, not together], given, _made, together)


def _given_now(head: NewRun, payload: Payload) -> dict[str, object]:
    return {
        "run_id": payload.id,
        "payload_hash": payload.payload_hash,
        "parameters": payload.parameters,
        "task": head.task,
        "parent_id": head.parent_id,
        "priority": head.priority,
        "queue": head.queue,
        "policy": head.policy,
        "tags": text_array(head.tags) if head.tags else None,
        "child_key": head.child_key,
        "concurrency_key": head.concurrency_key,
        "submitted_by": head.submitted_by,
        "traceparent": head.traceparent,
        "deduplicates": head.dedupe != "off",
    }


def _place(head: NewRun) -> LiteralString:
    if head.depends_on:
        return _HOLD
    return _QUEUE if head.job_id is None else _QUEUE_BY_JOB


def _given(head: NewRun, payloads: Sequence[Payload]) -> dict[str, object]:
    soon = isinstance(head.run_after, timedelta)
    ids, parameters, hashes = zip(*payloads, strict=True)
    return {
        "asked": len(payloads),
        "ids": plain_array(ids),
        "parameters": text_array(parameters),
        "payload_hashes": plain_array(hashes),
        "child_keys": None,
        "run_at": None if soon else head.run_after,
        "run_in": head.run_after if soon else None,
        "job_id": head.job_id,
        "parent_id": head.parent_id,
        "priority": head.priority,
        "task": head.task,
        "queue": head.queue,
        "policy": head.policy,
        "tags": text_array(head.tags) if head.tags else None,
        "concurrency_key": head.concurrency_key,
        "submitted_by": head.submitted_by,
        "traceparent": head.traceparent,
        "deduplicates": head.dedupe != "off",
    }
