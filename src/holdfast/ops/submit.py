"""Submit: make a run, or find the one that the same request made before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import orjson

from holdfast.domain.canonical import differences
from holdfast.domain.errors import ConfigurationError, HoldfastError, KeyReused, RunNotFound
from holdfast.domain.states import Status
from holdfast.domain.values import RunRecord, NewRun, Submitted
from holdfast.sql import keys, runs
from holdfast.sql.statement import Op, Row

ROUNDS = 10


def submit(submission: NewRun) -> Op[Submitted]:
    """Make one run. A key decides alone; without one, `dedupe` may find a run to return instead."""
    if submission.key is not None:
        return (yield from _submit_keyed(submission))
    if submission.dedupe != "off":
        return (yield from _submit_deduplicated(submission))
    return (yield from submit_many([submission]))[0]


def submit_many(submissions: Sequence[NewRun]) -> Op[list[Submitted]]:
    """Make many runs, in one statement for each group that differs only in parameters.

    Submissions with a key or a dedupe rule are made one by one.
    """
    answers: dict[str, Submitted] = {}
    plain: dict[NewRun, list[NewRun]] = {}
    for submission in submissions:
        if submission.key is not None or submission.dedupe != "off":
            answers[submission.id] = yield from submit(submission)
        else:
            shared = replace(submission, id="", parameters="", payload_hash="", child_key=None)
            plain.setdefault(shared, []).append(submission)
    for group in plain.values():
        made = {row[0]: row for row in (yield from runs.insert(group))}
        for submission in group:
            if submission.id in made:
                answers[submission.id] = Submitted(_fresh(submission, made[submission.id]), True)
            else:
                answers[submission.id] = Submitted((yield from _existing(submission.id)), False)
    return [answers[submission.id] for submission in submissions]


def _submit_keyed(submission: NewRun) -> Op[Submitted]:
    key = submission.key or ""
    for _ in range(ROUNDS):
        made = yield from runs.insert_keyed(submission)
        if made:
            return Submitted(_fresh(submission, made[0]), True)
        known = yield from keys.find(submission.scope, key)
        # No key: whoever held it rolled back, or it was cleaned up, since the statement before.
        if known is None:
            continue
        if (known.task, known.payload_hash) != (submission.task, submission.payload_hash):
            raise KeyReused(key, known.run_id, (yield from _differing(submission, known)))
        return Submitted((yield from _existing(known.run_id)), False)
    raise HoldfastError(f"idempotency key {key!r} came and went {ROUNDS} times while it was asked for; ask again")


def _differing(submission: NewRun, known: keys.KeyRecord) -> Op[list[str]]:
    fields = ["/model"] if known.task != submission.task else []
    before = yield from runs.read(known.run_id)
    if before is not None:
        asked = orjson.loads(submission.parameters)
        fields += ["/parameters" + pointer for pointer in differences(before.parameters, asked)]
    return fields


def _submit_deduplicated(submission: NewRun) -> Op[Submitted]:
    isolation = yield from runs.hold_payload(submission.task, submission.payload_hash)
    if isolation != "read committed":
        raise ConfigurationError(
            f"dedupe needs a READ COMMITTED transaction to see runs that others just made; this one is {isolation}. "
            "Submit with a key instead, or outside this transaction."
        )
    if isinstance(submission.dedupe, timedelta):
        found = yield from runs.find_recent(submission.task, submission.payload_hash, submission.dedupe)
    else:
        found = yield from runs.find_active(submission.task, submission.payload_hash, submission.dedupe_window)
    if found is not None:
        return Submitted((yield from _existing(found)), False)
    return (yield from submit_many([replace(submission, dedupe="off")]))[0]


def _existing(run_id: str) -> Op[RunRecord]:
    found = yield from runs.read(run_id)
    if found is None:
        raise RunNotFound(f"run {run_id} was pruned while its idempotency key was still known; use a new key")
    return found


def _fresh(submission: NewRun, row: Row) -> RunRecord:
    created_at: datetime = row[1]
    run_after: datetime | None = row[2]
    policy: dict[str, Any] = orjson.loads(submission.policy) if submission.policy else {}
    return RunRecord(
        id=submission.id,
        task=submission.task,
        status=Status.PENDING,
        parameters=orjson.loads(submission.parameters),
        payload_hash=submission.payload_hash,
        queue=submission.queue,
        priority=submission.priority,
        created_at=created_at,
        run_after=run_after,
        due_at=run_after or created_at,
        max_attempts=policy.get("max_attempts", 3),
        reason="scheduled" if run_after and run_after > created_at else None,
        job_id=submission.job_id,
        parent_id=submission.parent_id,
        child_key=submission.child_key,
        concurrency_key=submission.concurrency_key,
        submitted_by=submission.submitted_by,
        tags=submission.tags,
    )
