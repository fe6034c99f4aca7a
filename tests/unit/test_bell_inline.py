"""Hints sent with the statement that creates a run: only a few of them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from holdfast.doorbells.bell import QUIET, BackgroundBell, Bell, CoalescingBell


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


@pytest.mark.parametrize(("inline", "after"), [(False, QUIET), (True, 2 * QUIET)])
def test_first_hint_and_one_after_a_pause_are_sent_at_once(inline: bool, after: float) -> None:
    sent: list[str] = []
    bell = CoalescingBell(sent.extend, inline=inline, pause=60.0)
    bell.ring(["default"])
    assert sent == ["default"]
    bell._sent_at["default"] -= after
    bell.ring(["default"])
    assert sent == ["default", "default"]
    bell.close()


def test_hints_outside_postgres_are_never_sent_with_the_statement() -> None:
    def send(hints: Iterable[str]) -> None:
        """Stands for another doorbell than Postgres."""

    for bell in (CoalescingBell(send), Bell(), BackgroundBell(CoalescingBell(send, inline=True))):
        assert not bell.may_send_inline("default")
        bell.close()


def test_pending_hint_is_sent_with_the_next_statement() -> None:
    sent: list[str] = []
    bell = CoalescingBell(sent.extend, inline=True, pause=60.0)
    assert bell.may_send_inline("default")
    bell.ring(["default"])
    bell._sent_at["default"] -= QUIET
    assert bell.may_send_inline("default")
    bell.note_sent("default")
    bell.close()
    assert sent == []


def test_pending_hint_is_not_sent_while_a_statement_sends_one() -> None:
    sent: list[str] = []
    bell = CoalescingBell(sent.extend, inline=True, pause=60.0)
    assert bell.may_send_inline("default")
    bell.ring(["default"])
    (due,) = bell._due["default"]
    bell._sent_at["default"] -= QUIET
    assert bell.may_send_inline("default")
    assert min(bell._due["default"]) > due
    bell.note_sent("default")
    bell.close()
    assert sent == []


def test_pending_hint_is_sent_by_itself_if_the_next_statement_sends_none() -> None:
    sent: list[str] = []
    bell = CoalescingBell(sent.extend, inline=True, pause=60.0)
    assert bell.may_send_inline("default")
    bell.ring(["default"])
    bell._sent_at["default"] -= QUIET
    assert bell.may_send_inline("default")
    bell.close()
    assert sent == ["default"]


def test_hint_about_a_run_that_took_long_to_commit_waits_for_the_next_statement() -> None:
    sent: list[str] = []
    bell = CoalescingBell(sent.extend, inline=True, pause=60.0)
    assert bell.may_send_inline("default")
    assert not bell.may_send_inline("default")
    bell._sent_at["default"] -= QUIET
    bell.ring(["default"])
    assert sent == []
    assert bell.may_send_inline("default")
    bell.note_sent("default")
    bell.close()
    assert sent == []


@pytest.mark.parametrize("pending", [False, True])
def test_hint_about_a_run_committed_after_a_statement_sent_one_is_not_dropped(pending: bool) -> None:
    """The statement's transaction may have ended before that of the run, although its thread continues later."""
    sent: list[str] = []
    bell = CoalescingBell(sent.extend, inline=True, pause=60.0)
    if pending:
        assert bell.may_send_inline("default")
        bell.ring(["default"])
        bell._sent_at["default"] -= QUIET
    assert bell.may_send_inline("default")
    bell.ring(["default"])
    bell.note_sent("default")
    bell.close()
    assert sent == ["default"]
