"""What a worker does with a notification that hands it a run, if the payload is malformed."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import orjson
import pytest

from holdfast.domain.values import Claim
from holdfast.doorbells.poll import PollListener
from holdfast.executors.inline import InlineExecutor
from holdfast.observe import subscribe
from holdfast.worker.hand_over import HandOver
from holdfast.worker.options import WorkerOptions
from holdfast.worker.results import AttemptResults
from holdfast.worker.session import WorkerSession

ROW: list[Any] = ["run", 1, 0, "task", "default", "{}", "00ff", None, 0, 0.5, None, None, 0, "now"]


def text(value: Any) -> str:
    return orjson.dumps(value).decode()


@pytest.mark.parametrize(
    "payload",
    [
        "no JSON",
        text({"run_id": "run"}),
        text(7),
        text(ROW[:-1]),
        text([*ROW, 1]),
        text([*ROW[:6], "no digits", *ROW[7:]]),
        text([*ROW[:6], None, *ROW[7:]]),
        text([None, *ROW[1:]]),
        text([ROW[0], "1", *ROW[2:]]),
    ],
)
def test_malformed_payload_is_ignored_and_the_worker_looks_for_what_it_was_given(payload: str) -> None:
    results = AttemptResults(WorkerSession(), lambda queue, delay: None)
    hand_over = HandOver(WorkerOptions("", {"inline": InlineExecutor()}, "inline", PollListener()))
    assert hand_over.due_at(free=False) == inf
    seen: list[str] = []
    stop = _record(seen)
    try:
        assert hand_over.receive(results.session.id + payload, results) == []
        assert (seen, hand_over.due_at(free=False)) == (["hand_over.unreadable"], 0.0)
        (claim,) = hand_over.receive(results.session.id + text(ROW), results)
    finally:
        stop()
    assert claim == Claim("run", 1, 0, "task", "default", "{}", b"\x00\xff", None, 0, 0.5, None, None, 0, "now")
    assert seen == ["hand_over.unreadable"]


def _record(seen: list[str]) -> Callable[[], None]:
    return subscribe(lambda event, fields: seen.append(event))
