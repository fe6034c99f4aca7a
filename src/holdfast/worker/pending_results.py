"""Completion: results gather here for a moment and are settled together.

Nothing is dropped while its lease may still be held. A batch that could not be written is put back and tried again, and
in the meantime the worker, which counts these runs as held, claims less and then nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from random import random
from time import monotonic

from holdfast.domain.errors import HoldfastError
from holdfast.domain.execution import Ended, Settled, TakenOver
from holdfast.domain.settling import settle
from holdfast.domain.states import AttemptStatus, Status
from holdfast.domain.values import AttemptRef, Claim, Settlement
from holdfast.worker.deferred import Deferred

BATCH = 1000
# How long results wait for others while more runs are under way.
WINDOW = 0.003


def unstorable(settlement: Settlement, refusal: Exception | None) -> Settlement:
    """The same attempt, failed because of what its ending held; the database's own words might repeat all of it."""
    ours = isinstance(refusal, HoldfastError)
    error = {
        "class": type(refusal).__name__ if ours else "ResultNotStorable",
        "message": str(refusal) if ours else "the database refused to keep how this attempt ended",
        "traceback": None,
    }
    return Settlement(
        settlement.ref,
        AttemptStatus.FAILED,
        Status.FAILED,
        task=settlement.task,
        elapsed=settlement.elapsed,
        error=error,
    )


class PendingResults:
    def __init__(self) -> None:
        self._waiting: deque[Settlement] = deque()
        self._since = 0.0
        self.doubtful: list[Settlement] = []
        self.deferred = Deferred()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, ended: Iterable[Ended], executor: str | None = None) -> None:
        """Add results that are not written yet; `executor` if it is not the one that the worker is registered with."""
        settlements = [
            settle(one.claim, one.outcome, random())
            for one in ended
            if not isinstance(one.outcome, Settled | TakenOver)
        ]
        self.put(settlements if executor is None else [one._replace(executor=executor) for one in settlements])

    def put(self, settlements: Iterable[Settlement]) -> None:
        if not self._waiting:
            self._since = monotonic()
        self._waiting.extend(settlements)

    def wait(self, others: bool) -> float:
        """How many seconds the oldest ending may still wait; `others` if more runs are under way."""
        if not others or len(self._waiting) >= BATCH:
            return 0.0
        return max(0.0, self._since + WINDOW - monotonic())

    def take(self) -> list[Settlement]:
        if len(self._waiting) <= BATCH:
            taken = list(self._waiting)
            self._waiting.clear()
            return taken
        return [self._waiting.popleft() for _ in range(BATCH)]

    def unsettled(self) -> list[Settlement]:
        """Everything that the database may not know yet."""
        return [*self._waiting, *self.doubtful, *self.deferred.everything()]

    def doubt(self, settlements: Sequence[Settlement]) -> None:
        """These were sent, and no answer came: they may have been written or not."""
        self.doubtful.extend(settlements)

    def keep(self, claims: Iterable[Claim]) -> None:
        """Cancel pending hand-backs of attempts that were claimed just now."""
        refs = {claim.ref for claim in claims}
        if any(not one.begun and one.ref in refs for one in self._waiting):
            self._waiting = deque(one for one in self._waiting if one.begun or one.ref not in refs)

    def resolve(self, written: set[AttemptRef]) -> list[AttemptRef]:
        """Forget the doubtful ones that were written, and send the others again."""
        again = [s for s in self.doubtful if s.ref not in written]
        done = [s.ref for s in self.doubtful if s.ref in written]
        self.doubtful.clear()
        self.put(again)
        return done
