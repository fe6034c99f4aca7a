"""Performing one attempt: what a task returned or raised becomes an outcome."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from holdfast.domain.canonical import canonical_text
from holdfast.domain.context import RunContext
from holdfast.domain.errors import NotCanonical, Postpone, ResultNotStorable
from holdfast.domain.execution import Limits, Settled
from holdfast.domain.masking import mask_secrets
from holdfast.domain.policies import Retry
from holdfast.domain.reasons import ReasonCode
from holdfast.domain.settling import Failed, HandedBack, Outcome, Stopped, Succeeded, stopped_by
from holdfast.domain.states import AttemptStatus, Status
from holdfast.domain.tasks import Task
from holdfast.domain.values import AttemptRef, Settlement, StoredResult

MESSAGE_LENGTH = 4_000
TRACEBACK_LENGTH = 16_000
_DEFAULT = Retry()
_HERE = str(Path(__file__).parent)


class Interrupted(BaseException):
    """Raised inside a task that was asked to stop and did not."""


def concluded(context: RunContext, value: Any, started: float, limits: Limits) -> Outcome | Settled:
    """Return the outcome of a task that returned a value."""
    text = storable(value, limits)
    context.flush()
    if context.own_transaction is None:
        return tuple.__new__(Succeeded, (text, None, monotonic() - started, tuple(context.additions)))
    if context.cancelled:
        context.own_transaction.rollback()
        return Stopped(elapsed=monotonic() - started)
    return _commit(context, text, started, limits)


def _commit(context: RunContext, text: str, started: float, limits: Limits) -> Outcome | Settled:
    own = context.own_transaction
    assert own is not None  # noqa: S101
    stored: StoredResult | None = None
    encoded = text.encode()
    if len(encoded) > limits.inline_result_bytes:
        stored = context.link.store(context.ref, encoded)
    elapsed = monotonic() - started
    settlement = Settlement(
        context.ref,
        AttemptStatus.SUCCEEDED,
        Status.SUCCEEDED,
        task=context.task,
        elapsed=elapsed,
        lag=context.lag,
        result=None if stored else text,
        stored=stored,
        adds=tuple(context.additions),
    )
    if own.commit(settlement):
        return Settled(elapsed)
    # The run was cancelled, or its lease was lost. The worker settles the attempt, subject to the fence.
    return Stopped(elapsed=elapsed)


def storable(value: Any, limits: Limits) -> str:
    """Return a result as the text that is stored. Raise ResultNotStorable."""
    try:
        text = canonical_text(value)
    except NotCanonical as error:
        raise ResultNotStorable(f"the result cannot be stored: {error}") from None
    if len(text) > limits.max_result_bytes or (
        len(text) * 4 > limits.max_result_bytes and len(text.encode()) > limits.max_result_bytes
    ):
        raise ResultNotStorable(
            f"the result is larger than {limits.max_result_bytes} bytes; return less, or write it to a file of your "
            "own and return where it is"
        )
    return text


def is_large(outcome: object, limits: Limits) -> bool:
    """Whether this is a success whose result is too large to be stored in the row."""
    if not isinstance(outcome, Succeeded):
        return False
    text, limit = outcome.result or "", limits.inline_result_bytes
    return len(text) > limit or (len(text) * 4 > limit and len(text.encode()) > limit)


def kept(store: Callable[[str, int, bytes], StoredResult], ref: AttemptRef, outcome: Succeeded) -> Outcome:
    """Store a large result and return the outcome; an error of the store is a failure that may be retried."""
    text = (outcome.result or "").encode()
    try:
        return Succeeded(None, store(ref.run_id, ref.number, text), outcome.elapsed, outcome.adds)
    except Exception as error:  # noqa: BLE001 - any store may fail in any way
        described = describe(error)
        described["message"] = f"the result ({len(text)} bytes) could not be stored: {described['message']}"
        return Failed(described, elapsed=outcome.elapsed)


def failed(context: RunContext, task: Task | None, error: BaseException, started: float) -> Outcome:
    """Return the outcome of a task that raised."""
    elapsed = monotonic() - started
    own = context.own_transaction
    if own is not None:
        own.rollback()
    with suppress(OSError):  # the worker may be gone
        context.flush()
    match error:
        case _ if context.stop_request is not None and isinstance(error, (Interrupted, type(context.stop_reason))):
            return stopped_by(context.stop_request, elapsed)
        case Postpone():
            return HandedBack(elapsed, ReasonCode.POSTPONED, error.delay.total_seconds())
        case SystemExit():
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
            return Failed(describe(error), reason=ReasonCode.CRASH, exit_code=code, elapsed=elapsed)
        case KeyboardInterrupt():
            return Failed(describe(error), reason=ReasonCode.CRASH, exit_code=130, elapsed=elapsed)
        case _:
            policy = (task.retry if task else None) or _DEFAULT
            retryable = not isinstance(error, Exception) or policy.allows(error)
            return Failed(describe(error), retryable=retryable, elapsed=elapsed)


def describe(error: BaseException) -> dict[str, Any]:
    """Return the class, message and traceback of an error as they are stored: storable text, with secrets masked."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        message = str(error)
    except Exception as nested:  # noqa: BLE001 - the message is user code
        message = f"(the message could not be read: {type(nested).__name__})"
    try:
        lines = "".join(traceback.format_exception(kind, error, _user_frames(error)))
    except Exception:  # noqa: BLE001 - formatting calls user code
        lines = "(the traceback could not be read)"
    return {
        "class": clean(name, MESSAGE_LENGTH),
        "message": clean(mask_secrets(message), MESSAGE_LENGTH),
        "traceback": clean(mask_secrets(lines), TRACEBACK_LENGTH),
    }


def _user_frames(error: BaseException) -> Any:
    """Return the traceback from the first frame of the task on."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and frames.tb_frame.f_code.co_filename.startswith(_HERE):
        frames = frames.tb_next
    return frames


def clean(text: str, length: int) -> str:
    """Return text that can be stored: without NUL and unpaired surrogates, and at most about this long."""
    if len(text) > length:
        half = length // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
