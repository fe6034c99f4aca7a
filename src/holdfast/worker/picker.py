"""Where to look for runs: which queues, in which order, and from which position on.

A claim starts where the last one in its queue stopped, so it never walks over the entries of runs that were claimed
before. What came in behind that position (a higher priority, a retry) is found because positions go back to the start
whenever a claim comes back short, when the queue's doorbell rings, and every so often.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.domain.values import Claim, Position

CLAIMS_PER_ROUND = 50
QUEUES_PER_CLAIM = 64


class Picker:
    def __init__(self, queues: Sequence[str] | None) -> None:
        self._fixed = queues is not None
        self._order: list[str] = list(dict.fromkeys(queues or ()))
        self._positions: dict[str, Position] = {}
        self._turn = 0
        self._claims = 0

    def serves(self, queues: Iterable[str]) -> list[str]:
        """Those of these queues that this worker takes runs from."""
        return [queue for queue in queues if not self._fixed or queue in self._order]

    def know(self, queues: Iterable[str]) -> None:
        """All queues that have runs, as just discovered."""
        if not self._fixed:
            found = dict.fromkeys(queues)
            self._order = [queue for queue in self._order if queue in found]
            self.add(found)

    def add(self, queues: Iterable[str]) -> None:
        """Queues of which it was heard that they have runs."""
        if not self._fixed:
            self._order += [queue for queue in queues if queue not in self._order]

    def restart(self, queues: Iterable[str] | None = None) -> None:
        """Look from the start again, in these queues or in all."""
        if queues is None:
            self._positions.clear()
            self._claims = 0
        else:
            for queue in queues:
                self._positions.pop(queue, None)

    def positions(self) -> list[Position]:
        """Where the next claim looks. Each claim begins with another queue, so that none is served last for ever."""
        count = len(self._order)
        if not count:
            return []
        self._claims += 1
        if self._claims > CLAIMS_PER_ROUND:
            self.restart()
        self._turn = (self._turn + 1) % count
        turned = (self._order[self._turn :] + self._order[: self._turn])[:QUEUES_PER_CLAIM]
        return [self._positions.get(queue) or Position(queue) for queue in turned]

    def took(self, positions: Sequence[Position], claims: Sequence[Claim], limit: int) -> bool:
        """Remember where a claim from these positions stopped. True if another one may find more."""
        if len(claims) >= limit:
            for queue, last in {claim.queue: claim for claim in claims}.items():
                self._positions[queue] = Position(queue, last.ord, str(last.rank_at), last.run_id)
            return True
        began_late = any(position != Position(position.queue) for position in positions)
        self.restart()
        return began_late or len(self._order) > QUEUES_PER_CLAIM
