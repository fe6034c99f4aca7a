"""Round trips: what a worker sends to the database in one transaction, and a second one that overlaps the first.

An ExchangeRequest settles the results that are ready and claims the runs that there is room for. Under load a second
request is under way at the same time, over a connection of its own, so that worker and server work at the same time.
That connection is opened when it is first needed, and nothing waits for it; it only adds speed, so after an error it is
not used for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from holdfast import ops
from holdfast.domain.doorbell import Address
from holdfast.domain.values import Acknowledgements, AttemptRef, Claim, Position, Settlement
from holdfast.sql import chores, leases, locks, logs, ready, waiting_workers
from holdfast.sql.logs import LogLine
from holdfast.sql.orphans import Orphan
from holdfast.sql.statement import Op
from holdfast.sql.waiting_workers import Given, Listed
from holdfast.worker.database import Database

PROMOTED_AT_ONCE = 1000
RESCUED_AT_ONCE = 500
# How long the second connection is not used after an error.
REST = 30.0
# How long to wait for a round trip that was cancelled.
LAST_ANSWER = 2.0


@dataclass(slots=True)
class ExchangeRequest:
    """What is due in one round trip.

    `briefly` waits only a moment for locks. `promote` makes runs ready whose time has come, `look` finds the queues
    that have runs, and `survey` looks for work of the upkeep services. `wait` lists this worker among those that wait
    for a run; `leave` ends that, unless a claim finds no run; `given` looks for runs that it was given. `news` is the
    number of hints that the claim planner had received when it made the request.
    """

    worker_id: str
    settlements: Sequence[Settlement] = ()
    progress: Sequence[tuple[AttemptRef, str]] = ()
    lines: Sequence[LogLine] = ()
    positions: Sequence[Position] = ()
    tasks: Sequence[str] = ()
    queues: Sequence[str] | None = None
    limit: int = 0
    briefly: bool = False
    promote: bool = False
    look: bool = False
    survey: bool = False
    leave: bool = False
    wait: Address | None = None
    given: bool = False
    due: Mapping[str, Callable[[], Op[float | None]]] = field(default_factory=dict)
    """The statements that tell when upkeep services are due, by service; for a survey."""
    news: int = 0

    @property
    def several(self) -> bool:
        """Whether it takes several statements, which then share a transaction."""
        statements = bool(self.positions) + self.look + self.promote + bool(self.progress) + bool(self.lines)
        statements += self.leave + self.given + self.briefly + (self.wait is not None)
        return statements > 1 or self.survey or bool(self.settlements)


@dataclass(slots=True)
class Answer:
    """The response to an ExchangeRequest."""

    acks: Acknowledgements = field(default_factory=Acknowledgements)
    noted: list[AttemptRef] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    promoted: int = 0
    next_due: float | None = None
    queues: list[str] | None = None
    orphans: list[Orphan] = field(default_factory=list)
    chores: list[str] = field(default_factory=list)
    due: dict[str, float | None] = field(default_factory=dict)
    left: bool | None = None
    given: Given | None = None
    listed: Listed | None = None


def exchange(request: ExchangeRequest) -> Op[Answer]:
    """Perform a request. Progress comes first, because a result ends the lease that it needs; claims come after
    promotion, so that they find the runs that it made ready."""
    answer = Answer()
    if request.briefly:
        yield from locks.wait_briefly()
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
    if request.leave and (answer.claims or not request.positions):
        answer.left = yield from waiting_workers.leave(request.worker_id)
    if request.look:
        answer.queues, answer.next_due = yield from ready.look(request.tasks)
    if request.given:
        answer.given = yield from waiting_workers.given(request.worker_id)
    if request.wait is not None:
        answer.listed = yield from waiting_workers.wait(request.worker_id, request.wait, request.queues, request.tasks)
    if request.survey:
        answer.orphans = yield from ops.find_orphans(RESCUED_AT_ONCE)
        answer.chores = yield from chores.due()
        for name, due in request.due.items():
            answer.due[name] = yield from due()
    return answer


class SecondConnection:
    """The overlapping round trip: `task` while one runs, or has failed and `finish` has yet to raise its error."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.task: asyncio.Task[None] | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._not_before = 0.0

    def ready(self) -> bool:
        """Whether a round trip could begin now. Connect if that is all that is missing."""
        if self.task is not None or monotonic() < self._not_before:
            return False
        if not self.database.connected and self._connecting is None:
            self._connecting = asyncio.create_task(self.database.connect())
            self._connecting.add_done_callback(self._connected)
        return self.database.connected

    def _connected(self, connecting: asyncio.Task[None]) -> None:
        self._connecting = None
        if not connecting.cancelled() and connecting.exception() is not None:
            self.rest()

    def rest(self) -> None:
        """Begin no round trip for a while."""
        self._not_before = monotonic() + REST

    def begin(self, round_trip: Coroutine[Any, Any, None], ended: Callable[[], None]) -> None:
        """Begin a round trip; `ended` is called after it, however it ended."""
        self.task = asyncio.create_task(round_trip)

        def done(task: asyncio.Task[None]) -> None:
            if self.task is task and not task.cancelled() and task.exception() is None:
                self.task = None
            ended()

        self.task.add_done_callback(done)

    async def finish(self) -> None:
        """Wait until no round trip is under way here. Raise the error of one that failed."""
        if self._connecting is not None:
            self._connecting.cancel()
        while (task := self.task) is not None:
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                await self.abort()
                raise
            if self.task is task:
                self.task = None
                task.result()

    async def abort(self) -> None:
        """Cancel the round trip that is under way: whether its results were written is in doubt then."""
        if self._connecting is not None:
            self._connecting.cancel()
        task, self.task = self.task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task}, timeout=LAST_ANSWER)
