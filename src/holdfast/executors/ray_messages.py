"""The messages between a worker and its Ray actors: JSON in one byte string per call.

to the actor    give    the worker's id and claims
                stop    an attempt has to stop: the reason and the message of the request
                withdraw   give back the runs that have not begun
                answer, refused   the response to a question
from the actor  done    attempts that succeeded: the id, the number, the result and the duration of each
                ended   how another attempt ended
                progress, log, extend   notes of an attempt
                ask     a question of an attempt: steps and children
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from holdfast.domain.execution import Settled
from holdfast.domain.reasons import ReasonCode
from holdfast.domain.settling import Failed, HandedBack, NotBegun, Outcome, Stopped, Succeeded
from holdfast.domain.values import Claim, StoredResult
from holdfast.executors.channel import received_run, sent_run


def frame(messages: Sequence[Any]) -> bytes:
    return orjson.dumps(messages)


def messages_of(data: bytes) -> list[Any]:
    messages: list[Any] = orjson.loads(data)
    return messages


def sent_claim(claim: Claim) -> tuple[Any, ...]:
    """Return what an actor needs of a claim: the worker settles it, and keeps the rest."""
    run_id, number, _, task, _, parameters, payload_hash, policy, _, lag, job_id, _, _, _ = claim
    return run_id, number, task, parameters, payload_hash.hex(), policy, lag, job_id


def received_claim(sent: Sequence[Any]) -> Claim:
    run_id, number, task, parameters, payload_hash, policy, lag, job_id = sent
    hashed = bytes.fromhex(payload_hash)
    # Built directly as a tuple, because this is done for every run.
    return tuple.__new__(Claim, (run_id, number, 0, task, "", parameters, hashed, policy, 0, lag, job_id, None, 0, ""))


def sent_outcome(outcome: Outcome | Settled) -> list[Any]:
    match outcome:
        case Succeeded(result, stored, elapsed, adds):
            kept = [stored.ref, stored.size, stored.sha256] if stored else None
            return ["ok", result, kept, elapsed, [sent_run(new) for new in adds]]
        case Failed():
            code = outcome.exit_code
            return ["failed", outcome.error, outcome.retryable, outcome.reason, code, outcome.elapsed]
        case Settled():
            return ["settled", outcome.elapsed]
        case HandedBack():
            return ["handed back", outcome.elapsed, outcome.reason, outcome.delay]
        case NotBegun():
            return ["not begun"]
        case Stopped():
            return ["stopped", outcome.elapsed]


def received_outcome(sent: Sequence[Any]) -> Outcome | Settled:
    match sent:
        case ["ok", result, kept, elapsed, adds]:
            stored = StoredResult(*kept) if kept else None
            return Succeeded(result, stored, elapsed, tuple(received_run(new) for new in adds))
        case ["failed", error, retryable, reason, code, elapsed]:
            return Failed(error, retryable, ReasonCode(reason) if reason else None, code, elapsed)
        case ["settled", elapsed]:
            return Settled(elapsed)
        case ["handed back", elapsed, reason, delay]:
            return HandedBack(elapsed, ReasonCode(reason), delay)
        case ["not begun"]:
            return NotBegun()
        case ["stopped", elapsed]:
            return Stopped(elapsed)
    raise ValueError(f"not an outcome: {sent[:1]}")
