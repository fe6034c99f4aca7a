"""The claim planner with up to two overlapping round trips."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.worker.claim_planner import ClaimPlanner
from holdfast.worker.round_trips import Answer, ExchangeRequest

NOW = 1000.0


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> ClaimPlanner:
    monkeypatch.setattr("holdfast.worker.claim_planner.monotonic", lambda: NOW)
    return new_planner()


def new_planner(quiet_start: float = 0.0) -> ClaimPlanner:
    options: Any = SimpleNamespace(
        queues=("a",),
        poll_every=1.0,
        poll_every_listening=8.0,
        until_empty=False,
        listener=SimpleNamespace(live=True),
        executable_tasks=list,
        quiet_start=quiet_start,
    )
    return ClaimPlanner(options)


def planned(planner: ClaimPlanner, at: float = NOW) -> ExchangeRequest:
    request = ExchangeRequest("worker")
    planner.plan(request, at, 10)
    return request


def test_planner_is_idle_after_a_claim_that_finds_nothing(planner: ClaimPlanner) -> None:
    request = planned(planner)
    planner.learn(request, Answer(queues=[]), NOW, planner.news)
    assert planner.idle(NOW)
    assert not planner.backlog


def test_worker_with_a_quiet_start_looks_for_runs_only_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.worker.claim_planner.monotonic", lambda: NOW)
    planner = new_planner(quiet_start=1.0)
    early = planned(planner)
    assert (early.promote, early.look, early.positions) == (False, False, ())
    assert planner.wait(NOW, 1) == pytest.approx(1.0)
    later = planned(planner, NOW + 1.0)
    assert later.promote


@pytest.mark.parametrize(("until_empty", "wait"), [(False, 8.0), (True, 1.0)])
def test_worker_that_runs_until_empty_polls_often(planner: ClaimPlanner, until_empty: bool, wait: float) -> None:
    planner._options.until_empty = until_empty  # type: ignore[misc]
    planner.learn(planned(planner), Answer(queues=[]), NOW, planner.news)
    assert planner.wait(NOW, 0) == pytest.approx(wait)


def test_retry_that_another_round_trip_caused_is_kept(planner: ClaimPlanner) -> None:
    request = planned(planner)
    planner.expect("a", 2.0)
    planner.learn(request, Answer(queues=[]), NOW, planner.news)
    assert not planner.idle(NOW + 1.0)
    assert planner.wait(NOW, 0) == pytest.approx(2.0)


def test_ring_during_a_round_trip_keeps_the_backlog(planner: ClaimPlanner) -> None:
    request = planned(planner)
    planner.ring(["a"])
    planner.learn(request, Answer(queues=[]), NOW, planner.news)
    assert planner.backlog
    assert not planner.idle(NOW)
    request = planned(planner)
    planner.learn(request, Answer(queues=[]), NOW, planner.news)
    assert planner.idle(NOW)


def test_retry_in_the_response_itself_is_covered_by_the_response(planner: ClaimPlanner) -> None:
    request = planned(planner)
    before = planner.news
    planner.expect("a", 0.0)
    planner.learn(request, Answer(queues=[]), NOW, before)
    assert not planner.backlog


def test_everything_is_requested_again_after_a_round_trip_without_a_response(planner: ClaimPlanner) -> None:
    planned(planner)
    planner.restart()
    request = planned(planner)
    assert request.promote
    assert request.positions
