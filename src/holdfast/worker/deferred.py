"""Results that cannot be written yet, because another transaction holds a lock they need or the server rejects them.

They wait here, with their leases held, while other results are written. A result that is blocked by locks is checked
again without waiting for those locks; a result that the server rejected is retried in its own transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import monotonic

from holdfast.domain.values import Settlement
from holdfast.sql.locks import Blocked

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0


class Deferred:
    """The deferred results of one worker session, and when to check them again."""

    def __init__(self) -> None:
        self.locked: list[Settlement] = []
        self.unexplained: list[Settlement] = []
        self.refused: list[Settlement] = []
        self.elsewhere = False
        self._jobs: set[str] = set()
        self._pause = FIRST_PAUSE
        self._due_at = 0.0

    def __len__(self) -> int:
        return len(self.locked) + len(self.unexplained) + len(self.refused)

    def everything(self) -> list[Settlement]:
        return [*self.locked, *self.unexplained, *self.refused]

    def due_in(self) -> float | None:
        """Return the seconds until the next check; None if there are no deferred results."""
        return max(0.0, self._due_at - monotonic()) if len(self) else None

    def add_locked(self, settlements: Iterable[Settlement], why: Iterable[Blocked] = ()) -> None:
        """Add results that wait for locks. If a whole job is locked, its later results are deferred as well.

        `elsewhere` means that a lock is not on a job, so any later result may wait for the same lock.
        """
        self._schedule()
        self.locked.extend(settlements)
        for one in why:
            if one.with_job and one.job_id is not None:
                self._jobs.add(one.job_id)
            else:
                self.elsewhere = True

    def add_unexplained(self, settlements: Iterable[Settlement]) -> None:
        """Add results that are blocked by a lock that could not be found. They are retried one by one."""
        self._schedule()
        self.unexplained.extend(settlements)

    def add_refused(self, settlement: Settlement) -> None:
        """Add a result that the server rejected for a reason other than its values."""
        self._schedule()
        self.refused.append(settlement)

    def keep_back(self, settlements: Sequence[Settlement], job_of: Callable[[str], str | None]) -> list[Settlement]:
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
        self._jobs, self.elsewhere = set(), False
        self._pause = min(LONGEST_PAUSE, self._pause * 2)
        return taken

    def relax(self) -> None:
        """Reset the interval: a result was written."""
        self._pause = FIRST_PAUSE

    def _schedule(self) -> None:
        if not len(self):
            self._due_at = monotonic() + self._pause
