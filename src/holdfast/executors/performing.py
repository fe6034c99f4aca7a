"""Performing one attempt: call the task, and turn whatever happens into an outcome."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from holdfast.domain.canonical import canonicalize
from holdfast.domain.context import RunContext
from holdfast.domain.errors import NotCanonical, ResultNotStorable
from holdfast.domain.execution import Limits, Settled
from holdfast.domain.masking import mask_secrets
from holdfast.domain.policies import Retry
from holdfast.domain.reasons import ReasonCode
from holdfast.domain.settling import Failed, Outcome, Stopped, Succeeded, stopped_by
from holdfast.domain.states import AttemptStatus, Status
from holdfast.domain.tasks import Task
from holdfast.domain.values import AttemptRef, Settlement, StoredResult

MESSAGE_LENGTH = 4_000
TRACEBACK_LENGTH = 16_000
_DEFAULT = Retry()
_HERE = str(Path(__file__).parent)


class Interrupted(BaseException):
    """Raised in the midst of a task that does not stop by itself."""


def concluded(context: RunContext, value: Any, started: float, limits: Limits) -> Outcome | Settled:
    """The outcome of a task that returned."""
    text = storable(value, limits)
    context.flush()
    if context.own_transaction is None:
        return Succeeded(text, None, monotonic() - started, tuple(context.additions))
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
    # Cancelled or fenced in between. Either way the worker's own finish will say which, and write nothing else.
    return Stopped(elapsed=elapsed)


def storable(value: Any, limits: Limits) -> str:
    """The text under which a result is kept. Raises ResultNotStorable."""
    try:
        text = canonicalize(value)[0]
    except NotCanonical as error:
        raise ResultNotStorable(f"the result cannot be kept: {error}") from None
    if len(text) > limits.max_result_bytes or (
        len(text) * 4 > limits.max_result_bytes and len(text.encode()) > limits.max_result_bytes
    ):
        raise ResultNotStorable(
            f"the result is larger than {limits.max_result_bytes} bytes; return less, or write it to a file of your "
            "own and return where it is"
        )
    return text


def kept(store: Callable[[str, int, bytes], StoredResult], ref: AttemptRef, outcome: Succeeded) -> Outcome:
    """The outcome once a large result is in the store; a store that fails is a failure that may be retried."""
    text = (outcome.result or "").encode()
    try:
        return Succeeded(None, store(ref.run_id, ref.number, text), outcome.elapsed, outcome.adds)
    except Exception as error:  # noqa: BLE001 - any store may fail in any way
        described = describe(error)
        described["message"] = f"the result ({len(text)} bytes) could not be stored: {described['message']}"
        return Failed(described, elapsed=outcome.elapsed)


def failed(context: RunContext, task: Task | None, error: BaseException, started: float) -> Outcome:
    """The outcome of a task that raised."""
    elapsed = monotonic() - started
    own = context.own_transaction
    if own is not None:
        own.rollback()
    with suppress(OSError):  # the worker may be gone; then nobody is left to tell
        context.flush()
    match error:
        case _ if context.stop_request is not None and isinstance(error, (Interrupted, type(context.stop_reason))):
            return stopped_by(context.stop_request, elapsed)
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
    """Class, message and traceback of an error, as they are kept: without values of variables and
    passwords, and storable."""
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
    """The traceback from the task's own frame on."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and frames.tb_frame.f_code.co_filename.startswith(_HERE):
        frames = frames.tb_next
    return frames


def clean(text: str, length: int) -> str:
    """Text that can be stored: no NUL, no half surrogate pairs, not too long."""
    if len(text) > length:
        half = length // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
