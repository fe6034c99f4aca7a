"""When a child process is replaced."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

import pytest

from holdfast.domain.execution import ChildLimits
from holdfast.executors import child_usage as wear_module
from holdfast.executors.child_usage import CHECK_COUNTS_EVERY, CHECK_MEMORY_EVERY, ChildUsage, is_exhaustion


@pytest.fixture(autouse=True)
def _no_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore the servers that the test process has started."""
    monkeypatch.setattr(wear_module, "has_processes", lambda: False)


def wrapped(cause: BaseException) -> BaseException:
    error = LookupError("says nothing of it")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, "Too many open files"),
        OSError(errno.ENFILE, "in the whole system"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        MemoryError(),
        RuntimeError("can't start new thread"),
        ValueError("connection failed: could not create socket: Too many open files"),
        wrapped(MemoryError()),
        ExceptionGroup("several", [ValueError("one"), OSError(errno.EMFILE, "two")]),
    ],
)
def test_exhaustion_is_detected_in_the_causes_of_an_error(error: BaseException) -> None:
    assert is_exhaustion(error)


@pytest.mark.parametrize(
    "error", [ValueError("no"), OSError(errno.ENOENT, "no such file"), BlockingIOError(errno.EAGAIN, "later")]
)
def test_ordinary_errors_are_not_taken_for_exhaustion(error: BaseException) -> None:
    assert not is_exhaustion(error)


def test_an_error_that_is_its_own_cause_is_examined_once() -> None:
    error = ValueError("round and round")
    error.__context__ = cause = KeyError("and back")
    cause.__context__ = error
    assert not is_exhaustion(error)


def test_child_is_replaced_after_a_run_that_ran_out_of_memory() -> None:
    usage = ChildUsage(ChildLimits())
    usage.failed(MemoryError())
    assert "memory" in (usage.check(monotonic()) or "")


def test_ordinary_failures_give_no_reason_to_replace_the_child() -> None:
    usage = ChildUsage(ChildLimits())
    usage.failed(ValueError("ordinary"))
    assert usage.check(monotonic()) is None


def test_descriptors_are_counted_periodically() -> None:
    usage = ChildUsage(ChildLimits(descriptors=10))
    now = monotonic()
    with ExitStack() as stack:
        for _ in range(11):
            stack.enter_context(Path(os.devnull).open())
        assert usage.check(now) is None
        assert "descriptors" in (usage.check(now + 2 * CHECK_COUNTS_EVERY) or "")


def test_descriptors_are_counted_at_once_after_a_failure() -> None:
    usage = ChildUsage(ChildLimits(descriptors=10))
    with ExitStack() as stack:
        for _ in range(11):
            stack.enter_context(Path(os.devnull).open())
        usage.failed(ValueError("ordinary"))
        assert "descriptors" in (usage.check(monotonic()) or "")


def test_age_and_memory_are_checked_every_second() -> None:
    now = monotonic()
    assert "older" in (ChildUsage(ChildLimits(age=0.5)).check(now + 2 * CHECK_MEMORY_EVERY) or "")
    assert ChildUsage(ChildLimits(age=60)).check(now + 2 * CHECK_MEMORY_EVERY) is None
    usage = ChildUsage(ChildLimits(memory=10_000_000))
    kept = b"x" * 40_000_000
    assert usage.check(now + CHECK_MEMORY_EVERY / 2) is None
    assert "memory" in (usage.check(now + 3 * CHECK_MEMORY_EVERY) or "")
    assert kept


def test_a_thread_left_by_a_failed_run_is_suspicious_and_one_from_before_is_not() -> None:
    usage = ChildUsage(ChildLimits())
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    try:
        thread.start()
        assert usage.check(monotonic() + CHECK_COUNTS_EVERY) is None
        usage.failed(ValueError("ordinary"))
        assert usage.check(monotonic()) is None
        thread_of_this_run = threading.Thread(target=done.wait)
        thread_of_this_run.start()
        usage.failed(ValueError("ordinary"))
        assert "threads" in (usage.check(monotonic()) or "")
    finally:
        done.set()
