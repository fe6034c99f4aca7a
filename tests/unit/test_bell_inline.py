"""Hints sent with the statement that creates a run: only a few of them."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.doorbells.bell import QUIET, BackgroundBell, CoalescingBell, SilentBell


def test_first_hint_is_sent_with_the_statement_and_later_ones_are_not() -> None:
    sent: list[str] = []
    bell = CoalescingBell(sent.extend, inline=True)
    assert bell.may_send_inline("default")
    assert not bell.may_send_inline("default")
    assert bell.may_send_inline("other")
    # The other hints are sent soon afterwards.
    bell.ring(["default"])
    bell.close()
    assert sent == ["default"]


def test_hint_is_sent_with_the_statement_again_after_a_pause() -> None:
    bell = CoalescingBell(lambda hints: None, inline=True)
    assert bell.may_send_inline("default")
    bell._sent_at["default"] -= QUIET
    assert bell.may_send_inline("default")
    bell.close()


def test_hints_outside_postgres_are_never_sent_with_the_statement() -> None:
    def send(hints: Iterable[str]) -> None:
        """Stands for another doorbell than Postgres."""

    for bell in (CoalescingBell(send), SilentBell(), BackgroundBell(CoalescingBell(send, inline=True))):
        assert not bell.may_send_inline("default")
        bell.close()


def test_pending_hint_is_sent_with_the_next_statement() -> None:
    sent: list[str] = []
    bell = CoalescingBell(sent.extend, inline=True, pause=60.0)
    assert bell.may_send_inline("default")
    bell.ring(["default"])
    bell._sent_at["default"] -= QUIET
    assert bell.may_send_inline("default")
    bell.close()
    assert sent == []
