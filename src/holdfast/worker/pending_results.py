"""Results that the database has not acknowledged: waiting for the next round trip, in doubt, or deferred."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import inf
from time import monotonic

from holdfast.domain.values import AttemptRef, Claim, Settlement
from holdfast.sql.locks import Blocked

BATCH = 1000
# How long results wait for others while more runs are being executed.
WINDOW = 0.003
# How long deferred results wait before they are checked again.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
# How many batches are checked for locks before they are written, after the last one in which a result was blocked.
CHECKED_BATCHES = 10


class PendingResults:
    """Results that the database has not acknowledged: `waiting` for the next round trip, `doubtful` and `deferred`.

    A doubtful result was sent, and no response came: it may have been written or not.
    """

    def __init__(self) -> None:
        self.waiting: deque[Settlement] = deque()
        self._since = 0.0
        self.doubtful: list[Settlement] = []
        self.deferred = Deferred()

    def put(self, settlements: Iterable[Settlement]) -> None:
        if not self.waiting:
            self._since = monotonic()
        self.waiting.extend(settlements)

    def wait(self, others: bool) -> float:
        """Return how many seconds the oldest result may still wait; `others` if more runs are being executed."""
        if not others or len(self.waiting) >= BATCH:
            return 0.0
        return max(0.0, self._since + WINDOW - monotonic())

    def take(self) -> list[Settlement]:
        if len(self.waiting) <= BATCH:
            taken = list(self.waiting)
            self.waiting.clear()
            return taken
        return [self.waiting.popleft() for _ in range(BATCH)]

    def unsettled(self) -> list[Settlement]:
        """Return all results that the database may not have yet."""
        return [*self.waiting, *self.doubtful, *self.deferred.everything()]

    def mark_doubtful(self, settlements: Sequence[Settlement]) -> None:
        """Note that these were sent without a response."""
        self.doubtful.extend(settlements)

    def mark_missing_doubtful(self, settlements: Sequence[Settlement]) -> None:
        """Doubt those of these results that are not kept: the worker was interrupted while it wrote them."""
        kept = {settlement.ref for settlement in self.unsettled()}
        self.mark_doubtful([settlement for settlement in settlements if settlement.ref not in kept])

    def cancel_hand_backs(self, claims: Iterable[Claim]) -> None:
        """Cancel pending hand-backs of attempts that were claimed just now."""
        refs = {claim.ref for claim in claims}
        self.waiting = deque(one for one in self.waiting if one.begun or one.ref not in refs)

    def resolve(self, written: set[AttemptRef]) -> list[AttemptRef]:
        """Forget the doubtful results that were written and return them; the others are sent again."""
        again = [s for s in self.doubtful if s.ref not in written]
        done = [s.ref for s in self.doubtful if s.ref in written]
        self.doubtful.clear()
        self.put(again)
        return done


class Deferred:
    """Results that cannot be written yet: another transaction holds a lock they need, or the server rejected them.

    Their leases are held while other results are written. A result that is blocked by locks is checked again without
    waiting for those locks; a result that the server rejected is retried in its own transaction.
    """

    def __init__(self) -> None:
        self.locked: list[Settlement] = []
        self.unexplained: list[Settlement] = []
        self.refused: list[Settlement] = []
        self._checks = 0
        self.elsewhere = False
        """Whether later results may be blocked as well, so that batches are checked before they are written."""
        self._jobs: set[str] = set()
        self.due_at = inf
        """When to check them again; infinity if there are none."""
        self._pause = FIRST_PAUSE

    def __len__(self) -> int:
        return len(self.locked) + len(self.unexplained) + len(self.refused)

    def everything(self) -> list[Settlement]:
        return [*self.locked, *self.unexplained, *self.refused]

    def add_locked(
        self, settlements: Iterable[Settlement], why: Iterable[Blocked] = (), *, again: bool = False
    ) -> None:
        """Add results that wait for locks, for the first time or `again`.

        If a whole job is locked, its later results are deferred as well. A lock that is not on a job may block any
        result that follows.
        """
        self._schedule()
        self.locked.extend(settlements)
        for one in why:
            if one.with_job and one.job_id is not None:
                self._jobs.add(one.job_id)
            elif not again:
                self._checks = CHECKED_BATCHES
                self.elsewhere = True

    def note_unblocked(self) -> None:
        """Note that no result of a batch was blocked. After several such batches, the next are written unchecked."""
        self._checks = max(0, self._checks - 1)
        self.elsewhere = self._checks > 0

    def add_unexplained(self, settlements: Iterable[Settlement]) -> None:
        """Add results that are blocked by a lock that could not be found. They are retried one by one."""
        self._schedule()
        self.unexplained.extend(settlements)

    def add_refused(self, settlement: Settlement) -> None:
        """Add a result that the server rejected for a reason other than its values."""
        self._schedule()
        self.refused.append(settlement)

    def hold_back(self, settlements: Sequence[Settlement], job_of: Callable[[str], str | None]) -> list[Settlement]:
        """Return the results that may be written now, and defer those whose jobs are known to be locked."""
        if not self._jobs:
            return list(settlements)
        free = []
        for settlement in settlements:
            if job_of(settlement.ref.run_id) in self._jobs:
                self.locked.append(settlement)
            else:
                free.append(settlement)
        return free

    def take(self) -> tuple[list[Settlement], list[Settlement], list[Settlement]]:
        """Take all deferred results, to check them now: blocked by known locks, by unknown locks, and rejected.

        Until a result can be written, the interval between checks grows.
        """
        taken = self.locked, self.unexplained, self.refused
        self.locked, self.unexplained, self.refused = [], [], []
        self._jobs = set()
        self.due_at = inf
        self._pause = min(LONGEST_PAUSE, self._pause * 2)
        return taken

    def reset_pause(self) -> None:
        """Reset the interval: a result was written."""
        self._pause = FIRST_PAUSE

    def _schedule(self) -> None:
        if not len(self):
            self.due_at = monotonic() + self._pause
