"""The client's side of a doorbell: hints that there may be work, sent after the commit and never one per run.

A hint is the name of a queue, or `stop:` and a worker's id. A lost hint only delays the run. Callers also pass the runs
that a hint is about, which only the RQ doorbell uses, because it sends one message per run.
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
from collections.abc import Callable, Iterable

from holdfast.domain.values import RunRecord

Send = Callable[[Iterable[str]], None]

QUIET = 0.01
LATER = (0.03, 0.2, 1.0)
# For this many seconds after the server's notification queue was full, statements send no notifications.
NO_ROOM = 30.0


class Bell:
    """Sends hints to workers. This one sends nothing: workers poll."""

    def ring(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        """Send hints about runs that have been committed."""

    def ring_later(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        """Send hints soon, repeatedly: the caller's transaction has not committed yet."""

    def may_send_inline(self, hint: str) -> bool:
        """Return True if the caller should send this hint itself, with the statement that writes the run."""
        return False

    def note_sent(self, hint: str) -> None:
        """Note that a statement has sent this hint, so that one that is about to be sent is not needed.

        A statement that finds an existing run, or fails, sends none.
        """
        return

    def suspend_inline(self) -> None:
        """Send no notifications with statements for a while: the server's notification queue is full."""

    def close(self) -> None:
        """Send pending hints, and stop."""


class CoalescingBell(Bell):
    """Sends the first hint immediately, and combines the hints of the next `QUIET` seconds into one.

    With `inline`, the statement that creates a run may itself send the first hint. Not all hints may be sent that way,
    because Postgres serializes transactions that notify. `pause` is how long the combined hint waits for a statement
    that can send it. It also waits if `QUIET` passed while the run was committed: a hint that is sent by itself takes
    another commit.
    """

    def __init__(self, send: Send, *, inline: bool = False, pause: float = QUIET) -> None:
        self._send = send
        self._inline = inline
        self._at_once_after = 2 * QUIET if inline else QUIET
        self._pause = pause
        self._inline_from = 0.0
        self._sent_at: dict[str, float] = {}
        self._due: dict[str, set[float]] = {}
        self._held: dict[str, float] = {}
        """When hints are due that were pending before a statement that sends one. Not those of runs committed later."""
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False

    def ring(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        now = time.monotonic()
        at_once = []
        with self._changed:
            for hint in hints:
                if self._is_due_soon(hint, now):
                    continue
                if now - self._sent_at.get(hint, -math.inf) >= self._at_once_after:
                    self._sent_at[hint] = now
                    at_once.append(hint)
                else:
                    self._schedule(hint, now + self._pause)
        if at_once:
            self._try_send(at_once)

    def ring_later(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        now = time.monotonic()
        with self._changed:
            for hint in hints:
                for pause in LATER:
                    self._schedule(hint, now + pause)

    def may_send_inline(self, hint: str) -> bool:
        now = time.monotonic()
        with self._changed:
            recent = now - self._sent_at.get(hint, -QUIET) < QUIET
            if not self._inline or recent or now < self._inline_from:
                return False
            self._sent_at[hint] = now
            if hint in self._due and self._is_due_soon(hint, now):
                # Not while the statement is under way: it usually makes this hint unnecessary.
                held = self._held[hint] = now + self._pause
                self._due[hint] = {max(at, held) for at in self._due[hint]}
            return True

    def note_sent(self, hint: str) -> None:
        with self._changed:
            later = self._due.pop(hint, set()) - {self._held.pop(hint, None)}
            if later:
                self._due[hint] = later

    def suspend_inline(self) -> None:
        self._inline_from = time.monotonic() + NO_ROOM

    def _is_due_soon(self, hint: str, now: float) -> bool:
        """Whether a hint is about to be sent that no statement makes unnecessary."""
        held = self._held.get(hint)
        return any(at <= now + self._pause and at != held for at in self._due.get(hint, ()))

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _schedule(self, hint: str, at: float) -> None:
        self._due.setdefault(hint, set()).add(at)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="holdfast-bell", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                times = [at for due in self._due.values() for at in due]
                if self._closing and not times:
                    return
                pause = 0.0 if self._closing else min(times, default=time.monotonic() + 60) - time.monotonic()
                if pause > 0:
                    self._changed.wait(pause)
                    continue
                now = time.monotonic()
                ripe = [hint for hint, due in self._due.items() if self._closing or min(due, default=now + 1) <= now]
                for hint in ripe:
                    self._sent_at[hint] = now
                    left = set() if self._closing else {at for at in self._due[hint] if at > now}
                    if left:
                        self._due[hint] = left
                    else:
                        del self._due[hint]
            if ripe:
                self._try_send(ripe)

    def _try_send(self, hints: list[str]) -> None:
        # A hint that cannot be sent is lost; workers poll anyway.
        with contextlib.suppress(Exception):
            self._send(hints)


class BackgroundBell(Bell):
    """Rings another bell from a thread, for callers that must not wait for a server."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="holdfast-ring", daemon=True)
        self._thread.start()

    def ring(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        sent = list(hints)
        self._calls.put(lambda: self._bell.ring(sent, runs))

    def ring_later(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        sent = list(hints)
        self._calls.put(lambda: self._bell.ring_later(sent, runs))

    def close(self) -> None:
        self._calls.put(None)
        self._thread.join()
        self._bell.close()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


def open_bell(kind: str, notify: Send) -> Bell:
    """Return the bell for a doorbell setting; `notify` sends hints through Postgres."""
    return Bell() if kind == "poll" else CoalescingBell(notify, inline=True)
