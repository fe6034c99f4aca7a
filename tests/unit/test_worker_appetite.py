"""What a worker concludes from turns, of which two may be under way at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.worker.appetite import Appetite
from holdfast.worker.turn import Answer, Errand

NOW = 1000.0


@pytest.fixture
def appetite(monkeypatch: pytest.MonkeyPatch) -> Appetite:
    monkeypatch.setattr("holdfast.worker.appetite.monotonic", lambda: NOW)
    options: Any = SimpleNamespace(
        queues=("a",), poll_every=1.0, poll_every_listening=8.0, listener=SimpleNamespace(live=True)
    )
    return Appetite(options)


def planned(appetite: Appetite, at: float = NOW) -> Errand:
    errand = Errand("worker")
    appetite.plan(errand, at, 10)
    return errand


def test_a_look_that_finds_nothing_sates(appetite: Appetite) -> None:
    errand = planned(appetite)
    appetite.learn(errand, Answer(queues=[]), NOW, appetite.news)
    assert appetite.sated(NOW)
    assert not appetite.hungry


def test_a_retry_that_another_turn_made_meanwhile_is_not_forgotten(appetite: Appetite) -> None:
    errand = planned(appetite)
    appetite.expect("a", 2.0)
    appetite.learn(errand, Answer(queues=[]), NOW, appetite.news)
    assert not appetite.sated(NOW + 1.0)
    assert appetite.wait(NOW, 0) == pytest.approx(2.0)


def test_a_run_that_became_ready_meanwhile_keeps_it_hungry(appetite: Appetite) -> None:
    errand = planned(appetite)
    appetite.ring(["a"])
    appetite.learn(errand, Answer(queues=[]), NOW, appetite.news)
    assert appetite.hungry
    assert not appetite.sated(NOW)
    errand = planned(appetite)
    appetite.learn(errand, Answer(queues=[]), NOW, appetite.news)
    assert appetite.sated(NOW)


def test_what_it_hears_with_the_answer_itself_was_seen_by_the_turn(appetite: Appetite) -> None:
    errand = planned(appetite)
    before = appetite.news
    appetite.expect("a", 0.0)
    appetite.learn(errand, Answer(queues=[]), NOW, before)
    assert not appetite.hungry


def test_after_a_turn_without_an_answer_everything_is_asked_again(appetite: Appetite) -> None:
    planned(appetite)
    appetite.restart()
    errand = planned(appetite)
    assert errand.promote
    assert errand.positions
