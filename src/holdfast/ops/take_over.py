"""Take-over: the process that executes an attempt gets its lease from the worker that claimed it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.domain.values import AttemptRef, Claim
from holdfast.sql import events, tallies
from holdfast.sql import take_over as leases
from holdfast.sql.statement import Op


def take_over(
    worker_id: str,
    ref: AttemptRef,
    claimed_by: str,
    *,
    executor: str | None = None,
    details: Mapping[str, Any] | None = None,
) -> Op[Claim | None]:
    """Move the lease of an attempt from the worker that claimed it to this one, once; return what to execute.

    None if the attempt has ended or was cancelled, or if another worker has it: then a FENCED event is recorded.
    A worker that did not receive the response may retry.
    """
    yield from leases.move(worker_id, ref, claimed_by, executor, details or {})
    claim = yield from leases.taken(worker_id, ref, claimed_by)
    if claim is None:
        yield from _record_refusal(worker_id, ref, claimed_by)
    return claim


def _record_refusal(worker_id: str, ref: AttemptRef, claimed_by: str) -> Op[None]:
    refused = yield from leases.refusal(worker_id, ref, claimed_by)
    if refused is None:
        return
    held = yield from events.hold_runs([ref.run_id])
    yield from events.fenced([ref], refused.reason, held)
    yield from tallies.add({(refused.task, "fenced", 0): (1, 0.0)}, [])
