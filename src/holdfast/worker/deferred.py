"""Results that cannot be written yet, because another transaction holds what they need or the server refuses them.

They wait here, with their leases held, while everything else goes on. A result that locks held up is looked at again
without waiting for those locks; one that was refused is tried again by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import monotonic

from holdfast.domain.values import Settlement
from holdfast.sql.locks import Blocked

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0


class Deferred:
    """The deferred results of one worker session, and when to look at them again."""

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
        """Seconds until they should be looked at again; None if there are none."""
        return max(0.0, self._due_at - monotonic()) if len(self) else None

    def add_locked(self, settlements: Iterable[Settlement], why: Iterable[Blocked] = ()) -> None:
        """These wait for locks. What holds up a whole job holds up its later results as well.

        `elsewhere` tells that a lock is not on a job: whichever results come next may wait for the same one.
        """
        self._schedule()
        self.locked.extend(settlements)
        for one in why:
            if one.with_job and one.job_id is not None:
                self._jobs.add(one.job_id)
            else:
                self.elsewhere = True

    def add_unexplained(self, settlements: Iterable[Settlement]) -> None:
        """These met a lock that cannot be looked for. They are tried one by one, apart from all others."""
        self._schedule()
        self.unexplained.extend(settlements)

    def add_refused(self, settlement: Settlement) -> None:
        """The server refused this one for a reason that is not in its values."""
        self._schedule()
        self.refused.append(settlement)

    def keep_back(self, settlements: Sequence[Settlement], job_of: Callable[[str], str | None]) -> list[Settlement]:
        """Those that may be written now; results of jobs that are known to be locked join the others here."""
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
        """All of them, to be looked at now: held up by known locks, by unknown ones, and refused.

        Until something gets through, each look comes later than the one before.
        """
        taken = self.locked, self.unexplained, self.refused
        self.locked, self.unexplained, self.refused = [], [], []
        self._jobs, self.elsewhere = set(), False
        self._pause = min(LONGEST_PAUSE, self._pause * 2)
        return taken

    def relax(self) -> None:
        """Something got through."""
        self._pause = FIRST_PAUSE

    def _schedule(self) -> None:
        if not len(self):
            self._due_at = monotonic() + self._pause
