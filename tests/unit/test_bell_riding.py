"""Hints sent with the statement that creates a run: only a few of them."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.doorbells.bell import QUIET, BackgroundBell, CoalescingBell, SilentBell


def test_first_hint_is_sent_with_the_statement_and_later_ones_are_not() -> None:
    sent: list[str] = []
    bell = CoalescingBell(sent.extend, riding=True)
    assert bell.rides("default")
    assert not bell.rides("default")
    assert bell.rides("other")
    # The other hints are sent soon afterwards.
    bell.ring(["default"])
    bell.close()
    assert sent == ["default"]


def test_hint_is_sent_with_the_statement_again_after_a_pause() -> None:
    bell = CoalescingBell(lambda hints: None, riding=True)
    assert bell.rides("default")
    bell._sent_at["default"] -= QUIET
    assert bell.rides("default")
    bell.close()


def test_hints_outside_postgres_are_never_sent_with_the_statement() -> None:
    def send(hints: Iterable[str]) -> None:
        """Somewhere else."""

    for bell in (CoalescingBell(send), SilentBell(), BackgroundBell(CoalescingBell(send, riding=True))):
        assert not bell.rides("default")
        bell.close()


def test_statement_takes_along_the_hint_that_waits_for_it() -> None:
    sent: list[str] = []
    bell = CoalescingBell(sent.extend, riding=True, pause=60.0)
    assert bell.rides("default")
    bell.ring(["default"])
    bell._sent_at["default"] -= QUIET
    assert bell.rides("default")
    bell.close()
    assert sent == []
