"""Submit: create a run, or find the one that the same request created before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any, NoReturn, Protocol

import orjson

from holdfast.domain.canonical import differences
from holdfast.domain.errors import ConfigurationError, HoldfastError, KeyReused, RunNotFound
from holdfast.domain.reasons import ReasonCode
from holdfast.domain.states import Status
from holdfast.domain.values import NewRun, NewRuns, Payload, RunRecord, Submitted
from holdfast.ops.depend import hold_awaited, link
from holdfast.sql import keys, payloads, runs, submissions
from holdfast.sql.statement import Op

ROUNDS = 10

# Fields in which the runs of one statement may differ. Either all or none of them have dependencies.
_OWN = {"id", "parameters", "payload_hash", "child_key", "depends_on", "ring", "known_as"}
_shared = attrgetter(*(field.name for field in fields(NewRun) if field.name not in _OWN))


class Batched(Protocol):
    """Batches of payloads. The number of batches is known before they are created."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Sequence[Payload]]: ...


def submit(new: NewRun) -> Op[Submitted]:
    """Create one run. With a key, only the key matters; without one, `dedupe` may find an existing run to return."""
    if new.depends_on:
        return (yield from submit_many([new]))[0]
    return (yield from _submit(new, together=False))


def submit_one(head: NewRun, payload: Payload, *, ring: bool = False, again: bool = True) -> Op[Submitted]:
    """Create a run from `head` with this payload. With `ring`, the statement also notifies its queue, if possible.

    A statement that notifies, and is alone in its transaction, hands the run to a waiting worker if there is one.
    With `again=False`, no earlier request can have created a run with this id, so no existing run is looked up.
    """
    if head.key is not None or head.dedupe != "off" or not submissions.is_plain(head):
        return (yield from submit(replace(head.with_payload(payload), ring=ring)))
    statement = submissions.insert_one(head, payload, ring=ring, again=again)
    made = statement.decode((yield statement))
    if made.created_at is not None:
        return Submitted(_fresh(head, made, payload), True, made.rung)
    return Submitted((yield from _existing(payload.id)), False)


def submit_many(many: Sequence[NewRun]) -> Op[list[Submitted]]:
    """Create many runs, all or none, in one statement for each group that differs only in parameters.

    Runs with a key or a dedupe rule are created one by one. Runs wait for those of their dependencies that have not
    ended. Runs of jobs are added by `add_tasks`, which counts them.
    """
    states = yield from hold_awaited(many)
    answers = yield from make(many, together=bool(states))
    yield from link([new for new, answer in answers if answer.created], states)
    return [answer for _, answer in answers]


def add_to_jobs(many: Sequence[NewRun]) -> Op[list[str]]:
    """Create runs of jobs without counting them, because the caller does. Return the jobs of the new runs.

    A job that is being stopped accepts them too: the process that stops it ends them.
    """
    many = list({new.id: new for new in many}.values())
    states = yield from hold_awaited(many)
    answers = yield from make(many, together=True)
    new = [new for new, answer in answers if answer.created]
    yield from link(new, states)
    return [one.job_id for one in new if one.job_id is not None]


def make(many: Sequence[NewRun], together: bool) -> Op[list[tuple[NewRun, Submitted]]]:
    """Write runs, without edges and without counting them. Return for each whether it was created."""
    answers: dict[str, Submitted] = {}
    groups: dict[tuple[Any, ...], list[NewRun]] = {}
    single = [new for new in many if new.key is not None or new.dedupe != "off"]
    for new in many:
        if new.key is None and new.dedupe == "off":
            groups.setdefault((bool(new.depends_on), *_shared(new)), []).append(new)
    together = together or len(single) + len(groups) > 1
    for new in single:
        answers[new.id] = yield from _submit(new, together=together)
    for group in groups.values():
        for new, answer in zip(group, (yield from _insert(group, together)), strict=True):
            answers[new.id] = answer
    return [(new, answers[new.id]) for new in many]


def _submit(new: NewRun, together: bool) -> Op[Submitted]:
    if new.key is not None:
        return (yield from _submit_keyed(new, together))
    if new.dedupe != "off":
        return (yield from _submit_deduplicated(new))
    return (yield from _insert([new], together))[0]


def _insert(group: Sequence[NewRun], together: bool) -> Op[list[Submitted]]:
    made = yield from submissions.insert(group, together=together)
    answers = []
    for new in group:
        if made.has(new.id):
            answers.append(Submitted(_fresh(new, made), True, made.rung))
        else:
            answers.append(Submitted((yield from _existing(new.id)), False))
    return answers


def submit_batches(head: NewRun, batches: Batched, *, together: bool, again: bool = True) -> Op[Sequence[Submitted]]:
    """Create runs that differ from `head` and from each other only in their payload, with one statement per batch.

    This is for runs without a key, dedupe rule, job or dependencies. With `together`, all batches are written in one
    transaction. With `again=False`, no earlier request can have created these runs.
    """
    sent = []
    for left, batch in zip(reversed(range(len(batches))), batches, strict=True):
        statement = submissions.insert_batch(head, batch, together=together, again=again, more=left > 0)
        sent.append((batch, statement, (yield statement)))
    written = [(batch, statement.decode(rows)) for batch, statement, rows in sent]
    if all(made.ids is None for _, made in written):
        return NewRuns([(_fresh(head, made), batch) for batch, made in written])
    answers = []
    for batch, made in written:
        for payload in batch:
            if made.has(payload.id):
                answers.append(Submitted(_fresh(head, made, payload), True))
            else:
                answers.append(Submitted((yield from _existing(payload.id)), False))
    return answers


def _submit_keyed(new: NewRun, together: bool) -> Op[Submitted]:
    key = new.key or ""
    for _ in range(ROUNDS):
        made = yield from submissions.insert_keyed(new, together=together)
        if made.has(new.id):
            return Submitted(_fresh(new, made), True, made.rung)
        known = yield from keys.find(new.scope, key)
        # The key is gone: since the last statement, its transaction was rolled back, or the key was cleaned up.
        if known is None:
            continue
        existing = yield from runs.read(known.run_id)
        if existing is None and (yield from remove_stale_key(new.scope, key, known)):
            continue
        if (known.task, known.payload_hash) != (new.task, new.payload_hash):
            raise reused(key, known, _differing(new, known, existing))
        return Submitted(existing or _missing(known.run_id), False)
    raise HoldfastError(
        f"other requests stored and removed idempotency key {key!r} {ROUNDS} times during this call; try again"
    )


def remove_stale_key(scope: str, key: str, known: keys.KeyRecord) -> Op[bool]:
    """Remove an expired key whose run or job has been pruned. Also return True if another caller has removed it."""
    if (yield from keys.release(scope, key, known.run_id)):
        return True
    return (yield from keys.find(scope, key)) != known


def reused(key: str, known: keys.KeyRecord, fields: Sequence[str] = ()) -> KeyReused:
    """The error for a request whose key was used for another request."""
    if known.made_job:
        return KeyReused(key, None, fields, job_id=known.run_id)
    return KeyReused(key, known.run_id, fields)


def _differing(new: NewRun, known: keys.KeyRecord, before: RunRecord | None) -> list[str]:
    fields = ["/model"] if known.task != new.task else []
    if before is not None:
        asked = orjson.loads(new.parameters)
        fields += ["/parameters" + pointer for pointer in differences(before.parameters, asked)]
    return fields


def _submit_deduplicated(new: NewRun) -> Op[Submitted]:
    isolation = yield from payloads.hold(new.task, new.payload_hash)
    if isolation != "read committed":
        raise ConfigurationError(
            f"dedupe needs a READ COMMITTED transaction to see runs of other sessions; this one is {isolation}. "
            "Submit with a key instead, or outside this transaction."
        )
    if isinstance(new.dedupe, timedelta):
        found = yield from payloads.recent(new.task, new.payload_hash, new.dedupe)
    else:
        found = yield from payloads.active(new.task, new.payload_hash, new.dedupe_window)
    if found is not None:
        return Submitted((yield from _existing(found)), False)
    return (yield from _insert([new], together=True))[0]


def _existing(run_id: str) -> Op[RunRecord]:
    found = yield from runs.read(run_id)
    return found or _missing(run_id)


def _missing(run_id: str) -> NoReturn:
    raise RunNotFound(f"run {run_id} has been pruned, but its idempotency key is still stored; use a new key")


@lru_cache(maxsize=1000)
def _max_attempts(policy: str | None) -> int:
    """How many attempts a run with this policy may have."""
    return int(orjson.loads(policy).get("max_attempts", 3)) if policy else 3


def _fresh(new: NewRun, made: submissions.Made, payload: Payload | None = None) -> RunRecord:
    """The record of a run that was just created, with another payload if one is given."""
    created_at, run_after = made.created_at, made.run_after
    assert created_at is not None  # noqa: S101 - only called for created runs
    reason = None
    if new.depends_on:
        reason = ReasonCode.DEPENDENCIES
    elif run_after and run_after > created_at:
        reason = ReasonCode.SCHEDULED
    id_, parameters, payload_hash = payload or (new.id, new.parameters, new.payload_hash)
    return RunRecord(
        id=id_,
        task=new.task,
        status=Status.PENDING,
        parameters=orjson.loads(parameters),
        payload_hash=payload_hash,
        queue=new.queue,
        priority=new.priority,
        created_at=created_at,
        run_after=run_after,
        due_at=run_after or created_at,
        max_attempts=_max_attempts(new.policy),
        reason=reason,
        job_id=new.job_id,
        parent_id=new.parent_id,
        child_key=new.child_key,
        concurrency_key=new.concurrency_key,
        submitted_by=new.submitted_by,
        tags=new.tags,
    )


def as_submitted(new: NewRun, run: RunRecord) -> RunRecord:
    """Return an existing run as this request would have created it: what the caller sent, and the id of the run."""
    return _fresh(new, submissions.Made(run.created_at, None, None))._replace(id=run.id)
