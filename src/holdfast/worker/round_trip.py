"""A turn at the database: what ended is settled, and what fits is taken, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast import ops
from holdfast.domain.values import Acknowledgements, AttemptRef, Claim, Position, Settlement
from holdfast.sql import chores, leases, logs, ready
from holdfast.sql.leases import Orphan
from holdfast.sql.logs import LogLine
from holdfast.sql.statement import Op

PROMOTED_AT_ONCE = 1000
RESCUED_AT_ONCE = 500


@dataclass(slots=True)
class ExchangeRequest:
    """What is due at this turn."""

    worker_id: str
    settlements: Sequence[Settlement] = ()
    progress: Sequence[tuple[AttemptRef, str]] = ()
    lines: Sequence[LogLine] = ()
    positions: Sequence[Position] = ()
    tasks: Sequence[str] = ()
    limit: int = 0
    promote: bool = False
    look: bool = False
    survey: bool = False
    due: Mapping[str, Callable[[], Op[float | None]]] = field(default_factory=dict)
    """The statements that tell when upkeep services are due, by service; for a survey."""
    news: int = 0

    @property
    def several(self) -> bool:
        """Whether it takes several statements, which then share a transaction."""
        asks = bool(self.positions) + self.look + self.promote + bool(self.progress) + bool(self.lines)
        return asks > 1 or self.survey or bool(self.settlements)


@dataclass(slots=True)
class Answer:
    """What the turn brought."""

    acks: Acknowledgements = field(default_factory=Acknowledgements)
    noted: list[AttemptRef] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    promoted: int = 0
    next_due: float | None = None
    queues: list[str] | None = None
    orphans: list[Orphan] = field(default_factory=list)
    chores: list[str] = field(default_factory=list)
    due: dict[str, float | None] = field(default_factory=dict)


def turn(request: ExchangeRequest) -> Op[Answer]:
    """Do the request. Progress goes first: an ending takes it along. What became ready is there to be claimed."""
    answer = Answer()
    if request.progress:
        answer.noted = yield from leases.progress(request.worker_id, request.progress)
    if request.lines:
        yield from logs.add(request.worker_id, request.lines)
    if request.settlements:
        answer.acks = yield from ops.finish(request.worker_id, request.settlements)
    if request.promote:
        answer.promoted, answer.next_due = yield from ops.promote(PROMOTED_AT_ONCE)
    if request.positions and request.limit > 0:
        answer.claims = yield from ops.claim(request.worker_id, request.positions, request.tasks, request.limit)
    if request.look:
        answer.queues, answer.next_due = yield from ready.look(request.tasks)
    if request.survey:
        answer.orphans = yield from ops.find_orphans(RESCUED_AT_ONCE)
        answer.chores = yield from chores.due()
        for name, due in request.due.items():
            answer.due[name] = yield from due()
    return answer
