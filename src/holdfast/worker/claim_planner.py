"""ClaimPlanner: when a worker looks for runs, and when it takes some.

It is hungry while it believes that there are runs to take: a doorbell rang, the last claim came back full, one of its
own runs goes again at once. A hungry worker claims whenever an executor has room. One that is not looks every so often
whether any of its queues has runs, and makes ready those whose time has come, exactly when it comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic

from holdfast.worker.options import WorkerOptions
from holdfast.worker.picker import Picker
from holdfast.worker.round_trip import PROMOTED_AT_ONCE, Answer, ExchangeRequest

DISCOVER_EVERY = 3.0
FAR = 3600.0
# A ring may be for a run whose time has not come: this soon after it, a look tells when it will.
LEARN_AFTER_RING = 0.2
LOCKED_AT_MOST = 4000


class ClaimPlanner:
    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._picker = Picker(options.queues)
        self._hungry = True
        self._look_at = 0.0
        self._promote_at = 0.0
        self._discovered_at = 0.0
        self._retries_until = 0.0
        self._found_nothing = False
        self._tasks_at_once = 1
        self.news = 0

    def ring(self, queues: Iterable[str]) -> bool:
        """A doorbell: these queues may have runs. True if any of them is ours."""
        rung = self._picker.serves(queues)
        self.news += 1
        if rung:
            self._picker.add(rung)
            self._picker.restart(rung)
            self._hungry = True
            self._look_at = min(self._look_at, monotonic() + LEARN_AFTER_RING)
        return bool(rung)

    def look_soon(self) -> None:
        """Rings may have been missed."""
        self.news += 1
        self._look_at = 0.0

    def restart(self) -> None:
        """Begin anew: nothing is known."""
        self.news += 1
        self._picker.restart()
        self._hungry = True
        self._promote_at = 0.0

    def expect(self, queue: str | None, delay: float) -> None:
        """One of our own runs goes again: at once, or when its delay is over."""
        self.news += 1
        if delay <= 0:
            if queue is not None:
                # A run of a job goes back to the place of its job, which may be behind where we look.
                self._picker.add([queue])
                self._picker.restart([queue])
            self._hungry = True
        else:
            due = monotonic() + delay
            self._promote_at = min(self._promote_at, due)
            self._retries_until = max(self._retries_until, due)

    @property
    def hungry(self) -> bool:
        """There may be runs to take."""
        return self._hungry

    def wait(self, now: float, room: int) -> float:
        """Seconds until there is a reason to look or to claim."""
        if self._hungry and room > 0:
            return 0.0
        return min(self._promote_at, FAR + now if self._hungry else self._look_at) - now

    def plan(self, request: ExchangeRequest, now: float, room: int) -> None:
        """Put on the request what is due. A look costs little, so anything else that is due takes it along."""
        request.news = self.news
        request.promote = now >= self._promote_at
        request.tasks = self._options.executable_tasks()
        idle = not self._hungry and not request.promote
        request.look = idle and (now >= self._look_at or request.survey)
        if room > 0 and not idle:
            request.limit = self._limit(room)
            request.positions = self._picker.positions()
            request.look = now >= self._discovered_at + DISCOVER_EVERY or not request.positions
        if request.promote or request.look:
            # The answer tells; what is expected until then counts as well.
            self._promote_at = now + FAR

    def plan_more(self, request: ExchangeRequest, room: int) -> None:
        """Put on the request what can be taken beside another turn, which does everything else that is due."""
        request.news = self.news
        if self._hungry and room > 0:
            request.tasks = self._options.executable_tasks()
            request.limit = self._limit(room)
            request.positions = self._picker.positions()

    def _limit(self, room: int) -> int:
        """How many runs to claim at once. A claim locks up to that many runs of each task before it takes any."""
        return max(1, min(room, LOCKED_AT_MOST // self._tasks_at_once))

    def learn(self, request: ExchangeRequest, answer: Answer, now: float, news: int) -> None:
        """Draw conclusions from a turn.

        `news` is how much was heard before its answer. Of what was heard since it was planned, it may not know: then
        that it found nothing means nothing.
        """
        was_hungry = self._hungry
        if answer.promoted >= PROMOTED_AT_ONCE:
            self._promote_at = now
        elif request.promote or request.look:
            next_due = now + (FAR if answer.next_due is None else max(0.0, answer.next_due))
            self._promote_at = min(self._promote_at, next_due)
        looked = answer.queues is not None or bool(request.positions)
        found = False
        if answer.queues is not None:
            self._discovered_at = now
            self._look_at = now + self._pause()
            self._picker.know(answer.queues)
            found = self._hungry = bool(self._picker.serves(answer.queues))
        if request.positions:
            self._tasks_at_once = len({claim.task for claim in answer.claims}) or 1
            self._hungry = self._picker.took(request.positions, answer.claims, request.limit)
            found = self._hungry or bool(answer.claims)
        if answer.promoted:
            # They may be of queues that had nothing before.
            self._hungry = found = True
            self._discovered_at = 0.0
        if request.news != news:
            self._hungry = found = self._hungry or was_hungry
        if looked:
            self._found_nothing = not found

    def _pause(self) -> float:
        return self._options.poll_every_listening if self._options.listener.live else self._options.poll_every

    def sated(self, now: float) -> bool:
        """Nothing was there at the last look, nothing is due, and no run of ours is to go again."""
        return self._found_nothing and not self._hungry and now < self._promote_at and now >= self._retries_until
