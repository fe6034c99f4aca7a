"""What a worker concludes from turns, of which two may be under way at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.worker.claim_planner import ClaimPlanner
from holdfast.worker.round_trip import Answer, ExchangeRequest

NOW = 1000.0


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> ClaimPlanner:
    monkeypatch.setattr("holdfast.worker.claim_planner.monotonic", lambda: NOW)
    options: Any = SimpleNamespace(
        queues=("a",),
        poll_every=1.0,
        poll_every_listening=8.0,
        listener=SimpleNamespace(live=True),
        executable_tasks=list,
    )
    return ClaimPlanner(options)


def planned(planner: ClaimPlanner, at: float = NOW) -> ExchangeRequest:
    request = ExchangeRequest("worker")
    planner.plan(request, at, 10)
    return request


def test_a_look_that_finds_nothing_sates(planner: ClaimPlanner) -> None:
    request = planned(planner)
    planner.learn(request, Answer(queues=[]), NOW, planner.news)
    assert planner.sated(NOW)
    assert not planner.hungry


def test_a_retry_that_another_turn_made_meanwhile_is_not_forgotten(planner: ClaimPlanner) -> None:
    request = planned(planner)
    planner.expect("a", 2.0)
    planner.learn(request, Answer(queues=[]), NOW, planner.news)
    assert not planner.sated(NOW + 1.0)
    assert planner.wait(NOW, 0) == pytest.approx(2.0)


def test_a_run_that_became_ready_meanwhile_keeps_it_hungry(planner: ClaimPlanner) -> None:
    request = planned(planner)
    planner.ring(["a"])
    planner.learn(request, Answer(queues=[]), NOW, planner.news)
    assert planner.hungry
    assert not planner.sated(NOW)
    request = planned(planner)
    planner.learn(request, Answer(queues=[]), NOW, planner.news)
    assert planner.sated(NOW)


def test_what_it_hears_with_the_answer_itself_was_seen_by_the_turn(planner: ClaimPlanner) -> None:
    request = planned(planner)
    before = planner.news
    planner.expect("a", 0.0)
    planner.learn(request, Answer(queues=[]), NOW, before)
    assert not planner.hungry


def test_after_a_turn_without_an_answer_everything_is_asked_again(planner: ClaimPlanner) -> None:
    planned(planner)
    planner.restart()
    request = planned(planner)
    assert request.promote
    assert request.positions
