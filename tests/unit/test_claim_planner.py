"""The claim planner with up to two overlapping round trips."""

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
        queues=("a",), poll_every=1.0, poll_every_listening=8.0, listener=SimpleNamespace(live=True)
    )
    return ClaimPlanner(options)


def planned(planner: ClaimPlanner, at: float = NOW) -> ExchangeRequest:
    request = ExchangeRequest("worker")
    planner.plan(request, at, 10)
    return request


def test_poll_without_runs_makes_the_planner_idle(planner: ClaimPlanner) -> None:
    request = planned(planner)
    planner.learn(request, Answer(queues=[]), NOW, planner.news)
    assert planner.sated(NOW)
    assert not planner.hungry


def test_retry_created_by_the_other_round_trip_is_not_missed(planner: ClaimPlanner) -> None:
    request = planned(planner)
    planner.expect("a", 2.0)
    planner.learn(request, Answer(queues=[]), NOW, planner.news)
    assert not planner.sated(NOW + 1.0)
    assert planner.wait(NOW, 0) == pytest.approx(2.0)


def test_run_that_became_ready_meanwhile_keeps_the_planner_claiming(planner: ClaimPlanner) -> None:
    request = planned(planner)
    planner.ring(["a"])
    planner.learn(request, Answer(queues=[]), NOW, planner.news)
    assert planner.hungry
    assert not planner.sated(NOW)
    request = planned(planner)
    planner.learn(request, Answer(queues=[]), NOW, planner.news)
    assert planner.sated(NOW)


def test_hint_received_with_the_response_was_seen_by_the_round_trip(planner: ClaimPlanner) -> None:
    request = planned(planner)
    before = planner.news
    planner.expect("a", 0.0)
    planner.learn(request, Answer(queues=[]), NOW, before)
    assert not planner.hungry


def test_round_trip_without_a_response_is_repeated_completely(planner: ClaimPlanner) -> None:
    planned(planner)
    planner.restart()
    request = planned(planner)
    assert request.promote
    assert request.positions
