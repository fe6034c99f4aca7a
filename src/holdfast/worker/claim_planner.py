"""The claim planner: when a worker looks for runs, when it claims some, and where.

There is a backlog while there may be runs to claim: a doorbell rang, the last claim returned as many runs as it asked
for, or a run of this worker is attempted again at once. With a backlog it claims whenever its executor has room.
Without one it looks every few seconds whether any of its queues has runs, and makes runs ready exactly when their time
has come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import monotonic

from holdfast.domain.tasks import registry
from holdfast.domain.values import Claim, Position
from holdfast.worker.options import WorkerOptions
from holdfast.worker.round_trips import PROMOTED_AT_ONCE, Answer, ExchangeRequest

DISCOVER_EVERY = 3.0
FAR = 3600.0
# A ring may be for a run whose time has not come: a look this soon after it learns when it will.
LEARN_AFTER_RING = 0.2
LOCKED_AT_MOST = 4000
CLAIMS_PER_ROUND = 50
QUEUES_PER_CLAIM = 64


class ClaimPlanner:
    """Plans claims and looks.

    `backlog` is true while there may be runs to claim, `promote_at` is when runs become ready by time, and `news`
    counts the hints received.
    """

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._picker = Picker(options.queues)
        self.backlog = not options.quiet_start
        self._look_at = self.promote_at = monotonic() + options.quiet_start
        self._discovered_at = 0.0
        self._retries_until = 0.0
        self._found_nothing = False
        self._tasks_at_once = 1
        self._tasks: list[str] = []
        self._tasks_version = -1
        self.news = 0

    def ring(self, queues: Iterable[str]) -> bool:
        """Note that these queues may have runs. Return whether this worker serves any of them."""
        rung = self._picker.serves(queues)
        self.news += 1
        if rung:
            self._picker.add(rung)
            self._picker.restart(rung)
            self.backlog = True
            self._look_at = min(self._look_at, monotonic() + LEARN_AFTER_RING)
        return bool(rung)

    def look_soon(self) -> None:
        """Look at the next opportunity: hints may have been missed."""
        self.news += 1
        self._look_at = 0.0

    def restart(self) -> None:
        """Forget what is known, after a round trip without a response."""
        self.news += 1
        self._picker.restart()
        self.backlog = True
        self.promote_at = 0.0

    def expect(self, queue: str | None, delay: float) -> None:
        """Note that a run of this worker will be attempted again: at once, or after a delay."""
        self.news += 1
        if delay <= 0:
            if queue is not None:
                # A run of a job goes back to the position of its job, which may lie before ours.
                self._picker.add([queue])
                self._picker.restart([queue])
            self.backlog = True
        else:
            due = monotonic() + delay
            self.promote_at = min(self.promote_at, due)
            self._retries_until = max(self._retries_until, due)

    def wait(self, now: float, room: int) -> float:
        """Return the seconds until there is a reason to look or to claim."""
        if self.backlog and room > 0:
            return 0.0
        return min(self.promote_at, FAR + now if self.backlog else self._look_at) - now

    def plan(self, request: ExchangeRequest, now: float, room: int) -> None:
        """Add what is due to a request. A look costs little, so a survey includes it."""
        request.news = self.news
        request.promote = now >= self.promote_at
        request.tasks = self._tasks if registry.version == self._tasks_version else self._read_tasks()
        nothing = not self.backlog and not request.promote
        request.look = nothing and (now >= self._look_at or request.survey)
        if room > 0 and not nothing:
            request.limit = self._limit(room)
            request.positions = self._picker.positions()
            request.look = now >= self._discovered_at + DISCOVER_EVERY or not request.positions
        if request.promote or request.look:
            # The response says when; until then, only what `expect` adds counts.
            self.promote_at = now + FAR

    def plan_more(self, request: ExchangeRequest, room: int) -> None:
        """Add a claim to a request that overlaps another one, which does everything else that is due."""
        request.news = self.news
        if self.backlog and room > 0:
            request.tasks = self._tasks if registry.version == self._tasks_version else self._read_tasks()
            request.limit = self._limit(room)
            request.positions = self._picker.positions()

    def _read_tasks(self) -> list[str]:
        """Return the tasks that this worker can execute; a task may be registered at any time."""
        self._tasks_version = registry.version
        self._tasks = self._options.executable_tasks()
        return self._tasks

    def _limit(self, room: int) -> int:
        """Return how many runs to claim at once. A claim locks up to that many runs of each task first."""
        return max(1, min(room, LOCKED_AT_MOST // self._tasks_at_once))

    def learn(self, request: ExchangeRequest, answer: Answer, now: float, news: int) -> None:
        """Update the plan with the response to a request.

        `news` is the number of hints before the response. If hints arrived while the request was under way, it may have
        missed the runs that they were about, and finding none proves nothing.
        """
        had_backlog = self.backlog
        if answer.promoted >= PROMOTED_AT_ONCE:
            self.promote_at = now
        elif request.promote or request.look:
            next_due = now + (FAR if answer.next_due is None else max(0.0, answer.next_due))
            self.promote_at = min(self.promote_at, next_due)
        looked = answer.queues is not None or bool(request.positions)
        found = False
        if answer.queues is not None:
            self._discovered_at = now
            self._look_at = now + self._pause()
            self._picker.know(answer.queues)
            found = self.backlog = bool(self._picker.serves(answer.queues))
        if request.positions:
            self._tasks_at_once = len({claim.task for claim in answer.claims}) or 1
            self.backlog = self._picker.took(request.positions, answer.claims, request.limit)
            found = self.backlog or bool(answer.claims)
        if answer.promoted:
            # They may be in queues that had no runs before.
            self.backlog = found = True
            self._discovered_at = 0.0
        if request.news != news:
            self.backlog = found = self.backlog or had_backlog
        if looked:
            self._found_nothing = not found

    def _pause(self) -> float:
        """Return the seconds until the next look. A worker that stops when it is idle looks often, to stop soon."""
        rings = self._options.listener.live and not self._options.until_empty
        return self._options.poll_every_listening if rings else self._options.poll_every

    def idle(self, now: float) -> bool:
        """Whether the last look found nothing, nothing is due, and no run of this worker will be attempted again."""
        return self._found_nothing and not self.backlog and now < self.promote_at and now >= self._retries_until


class Picker:
    """Where to look for runs: in which queues, in which order, and from which position on.

    A claim starts where the last one in its queue stopped, so it never walks over the entries of runs that were claimed
    before. A run that was placed before that position (a higher priority, a retry) is found because positions go back
    to the start whenever a claim returns fewer runs than it asked for, when the doorbell of the queue rings, and
    from time to time.
    """

    def __init__(self, queues: Sequence[str] | None) -> None:
        self._fixed = queues is not None
        self._order: list[str] = list(dict.fromkeys(queues or ()))
        self._positions: dict[str, Position] = {}
        self._first = 0
        self._claims = 0

    def serves(self, queues: Iterable[str]) -> list[str]:
        """Return those of these queues that this worker serves."""
        return [queue for queue in queues if not self._fixed or queue in self._order]

    def know(self, queues: Iterable[str]) -> None:
        """Replace the known queues by these, which are all that have runs."""
        if not self._fixed:
            found = dict.fromkeys(queues)
            self._order = [queue for queue in self._order if queue in found]
            self.add(found)

    def add(self, queues: Iterable[str]) -> None:
        """Add queues that may have runs."""
        if not self._fixed:
            self._order += [queue for queue in queues if queue not in self._order]

    def restart(self, queues: Iterable[str] | None = None) -> None:
        """Go back to the start, in these queues or in all."""
        if queues is None:
            self._positions.clear()
            self._claims = 0
        else:
            for queue in queues:
                self._positions.pop(queue, None)

    def positions(self) -> list[Position]:
        """Return where the next claim looks. Each claim begins with another queue, so that none is always last."""
        count = len(self._order)
        if not count:
            return []
        self._claims += 1
        if self._claims > CLAIMS_PER_ROUND:
            self.restart()
        self._first = (self._first + 1) % count
        ordered = (self._order[self._first :] + self._order[: self._first])[:QUEUES_PER_CLAIM]
        return [self._positions.get(queue) or Position(queue) for queue in ordered]

    def took(self, positions: Sequence[Position], claims: Sequence[Claim], limit: int) -> bool:
        """Remember where a claim from these positions stopped. Return whether another one may find more."""
        if len(claims) >= limit:
            for queue, last in {claim.queue: claim for claim in claims}.items():
                self._positions[queue] = Position(queue, last.ord, str(last.rank_at), last.run_id)
            return True
        began_late = any(position != Position(position.queue) for position in positions)
        self.restart()
        return began_late or len(self._order) > QUEUES_PER_CLAIM
