"""The sentences of `why`: one for each code, from its fields."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.documents.others import read_reason, reason_document
from holdfast.domain.reasons import describe
from holdfast.domain.records import Reason

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
WRITTEN = "2026-03-01T12:00:00Z"
FIRST = {"id": "1", "what": "load", "status": "RUNNING"}

SENTENCES: dict[str, tuple[str, dict[str, Any], str]] = {
    "running": (
        "running",
        {"attempt": 2, "worker_id": "w", "lease_expires_at": AT},
        f"attempt 2 is running on worker w, lease until {WRITTEN}",
    ),
    "running without a lease time": (
        "running",
        {"attempt": 2, "worker_id": "w", "lease_expires_at": None},
        "attempt 2 is running on worker w",
    ),
    "stopping": (
        "stopping",
        {"requested_at": AT, "reason": "by ada"},
        f"cancellation was requested at {WRITTEN}: by ada",
    ),
    "ended": ("ended", {"status": "FAILED", "detail": "ValueError: 1"}, "the run ended FAILED: ValueError: 1"),
    "ended without a detail": ("ended", {"status": "SUCCEEDED", "detail": None}, "the run ended SUCCEEDED"),
    "one dependency": (
        "dependencies",
        {"count": 1, "waits_for": [FIRST]},
        "waiting for 1 dependency to end: 1 (load, RUNNING)",
    ),
    "more dependencies than are named": (
        "dependencies",
        {"count": 2, "waits_for": [FIRST]},
        "waiting for 2 dependencies to end: 1 (load, RUNNING), ...",
    ),
    "retry": ("retry", {"due_at": AT}, f"waiting for the next attempt at {WRITTEN}"),
    "scheduled": ("scheduled", {"due_at": AT}, f"scheduled to start at {WRITTEN}"),
    "paused": (
        "paused",
        {"queue": "a", "paused_by": "ada", "paused_at": AT, "reason": "upgrade"},
        f"queue a was paused by ada at {WRITTEN} (upgrade)",
    ),
    "no worker for the queue": (
        "no-worker-for-queue",
        {"queue": "a", "workers": 3},
        "none of the 3 live workers serves queue a",
    ),
    "the only worker does not serve the queue": (
        "no-worker-for-queue",
        {"queue": "a", "workers": 1},
        "the only live worker does not serve queue a",
    ),
    "no worker for the task": (
        "no-worker-for-task",
        {"queue": "a", "task": "load"},
        "no live worker of queue a has the task load registered",
    ),
    "no worker for the executor": (
        "no-worker-for-executor",
        {"queue": "a", "task": "load", "executor": "ray_core"},
        (
            "task load needs the executor ray_core, and no live worker of queue a has it; start one with: "
            "holdfast worker --executor ray_core"
        ),
    ),
    "executor away": (
        "executor-away",
        {"queue": "a", "why": "no Ray cluster listens at 127.0.0.1:1"},
        "the workers that could claim this run cannot use their cluster: no Ray cluster listens at 127.0.0.1:1",
    ),
    "behind many": (
        "behind",
        {"queue": "a", "ahead": 1000, "or_more": True},
        "1000 or more ready runs in queue a are ahead of this one",
    ),
    "behind one": (
        "behind",
        {"queue": "a", "ahead": 1, "or_more": False},
        "1 ready run in queue a is ahead of this one",
    ),
}


@pytest.mark.parametrize(("code", "fields", "sentence"), SENTENCES.values(), ids=SENTENCES)
def test_reason_is_rendered_from_its_fields(code: str, fields: dict[str, Any], sentence: str) -> None:
    assert Reason(code, fields).detail == sentence


@pytest.mark.parametrize("code", ["no-worker", "busy", "next"])
def test_reason_without_fields_has_a_sentence(code: str) -> None:
    assert Reason(code).detail != code


@pytest.mark.parametrize(("code", "fields", "sentence"), SENTENCES.values(), ids=SENTENCES)
def test_reason_survives_the_http_api(code: str, fields: dict[str, Any], sentence: str) -> None:
    received = read_reason(reason_document(Reason(code, fields)))
    assert (received.code, received.fields, received.detail) == (code, fields, sentence)


def test_unknown_code_shows_the_sentence_of_the_server() -> None:
    assert read_reason({"code": "new", "detail": "the server says so"}).detail == "the server says so"
    assert describe("new", {}) is None
