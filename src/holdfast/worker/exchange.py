"""The exchange: the loop of round trips in which a worker writes results and claims runs.

Under load every round trip settles the results since the last one and claims the runs that there is room for, in one
transaction; the batches grow with the time that a round trip takes. If enough for another batch has gathered while one
is under way, a second one overlaps it. An idle worker looks every few seconds, or when the doorbell rings. While the
database is unreachable, the worker keeps its results and tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from time import monotonic

import psycopg

from holdfast.domain.errors import HoldfastError
from holdfast.domain.execution import INLINE, Ended
from holdfast.domain.values import AttemptRef, Claim
from holdfast.drivers.faults import Fault, fault_of
from holdfast.sql import ready
from holdfast.worker.attempt_services import DatabaseAttemptServices
from holdfast.worker.claim_planner import ClaimPlanner
from holdfast.worker.database import Busy, Database, Unavailable, said
from holdfast.worker.hand_over import HandOver
from holdfast.worker.options import WorkerOptions
from holdfast.worker.outages import Outage
from holdfast.worker.pending_results import PendingResults
from holdfast.worker.result_writer import ResultWriter
from holdfast.worker.results import AttemptResults
from holdfast.worker.round_trips import Answer, ExchangeRequest, SecondConnection, exchange
from holdfast.worker.session import WorkerSession
from holdfast.worker.upkeep import Upkeep

HAND_BACK_AFTER = 1.0
# This many results, or this much room, are worth an overlapping round trip.
CROWD = 100
# How long the loop leaves the interpreter to a thread that is beginning a run before it plans the next round trip.
BEGIN_WITHIN = 0.001


class Exchange:
    """Serves until the worker is `stopping`, its session is over or, with `leave_when_empty`, no run is held."""

    def __init__(self, options: WorkerOptions, database: Database, second: Database, upkeep: Upkeep) -> None:
        self._options = options
        self._executor = options.executor
        self._database = database
        self._upkeep = upkeep
        self._under_way: ExchangeRequest | None = None
        self._second = SecondConnection(second)
        self._coming = 0
        self._wake = asyncio.Event()
        self._planner = ClaimPlanner(options)
        self._hand_over = HandOver(options)
        self._outage = Outage(self._wake)
        self._survey_at = monotonic() + options.quiet_start
        self._grace_ends_at = inf
        self.claiming = True
        self.stopping = False
        self.leave_when_empty = False
        self.refusal: str | None = None
        self.results = self._new_results()
        self._writer = ResultWriter(database, lambda: self.results, self._outage, self._spread)
        self.attempt_services = DatabaseAttemptServices(database, options.prepare, lambda: self.session, self._wake.set)

    @property
    def session(self) -> WorkerSession:
        return self.results.session

    @property
    def pending(self) -> PendingResults:
        return self.results.pending

    def begin_session(self) -> None:
        """Start over with a new worker id."""
        self.results = self._new_results()
        self.attempt_services.clear()
        self._planner.restart()
        self._hand_over.restart()

    def _new_results(self) -> AttemptResults:
        quietly = self._options.default_executor == INLINE
        return AttemptResults(WorkerSession(), self._planner.expect, quietly=quietly, figures=self._options.figures)

    def wake(self) -> None:
        self._wake.set()

    def ring(self, queues: Iterable[str]) -> None:
        """Look for runs: these queues may have some."""
        if self._planner.ring(queues):
            self.wake()

    def receive(self, payload: str) -> None:
        """Begin a run that was handed to this worker."""
        claims = self._hand_over.receive(payload, self.results)
        if claims:
            self.begin(claims)
            asyncio.get_running_loop().call_later(BEGIN_WITHIN, self._wake.set)
        else:
            self.wake()

    def look_soon(self) -> None:
        """Look for runs: hints may have been missed."""
        self._planner.look_soon()
        self.wake()

    def stop(self) -> None:
        """Claim nothing more, and let `serve` return."""
        self.claiming = False
        self.stopping = True
        self.wake()

    def hurry(self) -> None:
        """Let `drain` return at once."""
        self._grace_ends_at = 0.0
        self.wake()

    def report(self, ended: Sequence[Ended], executor: str | None = None) -> None:
        """Accept how runs ended; `executor` is the name of the executor if it is not the default one."""
        self.results.report(ended, executor)
        self._overlap()
        self.wake()

    def return_unknown_leases(self, refs: Iterable[AttemptRef]) -> None:
        """Return leases that the database assigns to this worker, and that it does not know, to their queues."""
        self.results.return_unknown_leases(refs)
        self.wake()

    def hand_back_waiting(self) -> None:
        """Hand back claims that found no free slot for a while, so that another worker may take them."""
        for executor in self._options.executors.values():
            self.results.release(executor.take_back(HAND_BACK_AFTER if self.claiming else 0.0))
        if self.pending.waiting:
            self.wake()

    async def serve(self) -> None:
        """Exchange results and claims with the database until this worker is done."""
        await self._serve(self._is_done)

    async def drain(self, grace: float) -> None:
        """Claim nothing more, hand back what has not begun, and let the rest end within the grace."""
        self.claiming = False
        self.hand_back_waiting()
        self._grace_ends_at = min(self._grace_ends_at, monotonic() + grace)
        timer = asyncio.get_running_loop().call_later(grace, self.wake)
        try:
            with contextlib.suppress(TimeoutError):
                # A database that does not answer must not hold up the worker either.
                async with asyncio.timeout(grace + 1):
                    await self._serve(self._is_drained)
        finally:
            timer.cancel()

    def _is_done(self) -> bool:
        if self.stopping or self.session.over:
            return True
        if self.leave_when_empty:
            return not self.session.held and not self.pending.waiting
        return self._options.until_empty and self.idle

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do, neither here nor in the queues."""
        busy = self.session.held or self.pending.waiting or self.pending.doubtful or self._second.task is not None
        return not busy and self._planner.idle(monotonic())

    def _is_drained(self) -> bool:
        empty = not self.session.held and not self.pending.waiting
        return empty or self.session.over or monotonic() >= self._grace_ends_at

    async def _serve(self, until: Callable[[], bool]) -> None:
        try:
            while not until():
                await self._pause(until)
                if not until():
                    await self._take_round_trip()
            await self._second.finish()
        except asyncio.CancelledError:
            await self._second.abort()
            raise

    async def _pause(self, until: Callable[[], bool]) -> None:
        """Wait until a round trip is due."""
        self._wake.clear()
        wait = self._wait()
        while wait > 0 and not self.session.over and not until():
            try:
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            except TimeoutError:
                return
            self._wake.clear()
            wait = self._wait()
            if not self.claiming:
                return

    def _wait(self) -> float:
        """Return the seconds until the next round trip is due."""
        now = monotonic()
        second, session, pending = self._second.task, self.session, self.pending
        if second is not None and (second.done() or not self._is_crowded()):
            return 0.0 if second.done() else max(self._survey_at - now, 0.001)
        wait = min(self._survey_at, self.attempt_services.due_at, pending.deferred.due_at) - now
        if self.claiming:
            backlog = self._planner.backlog
            room = self._room() if backlog or self._hand_over.listed is None else 0
            wait = min(wait, self._planner.wait(now, room))
            wait = min(wait, self._hand_over.due_at(free=room > 0 and not backlog) - now)
        elif self._hand_over.listed is not None:
            return 0.0
        if pending.waiting:
            wait = min(wait, pending.wait(others=len(session.held) > len(pending.waiting)))
        return wait

    def _next_request(self) -> ExchangeRequest:
        now, held = monotonic(), len(self.session.held)
        request = self._write_request()
        if now >= self._survey_at:
            request.survey, request.due = True, self._upkeep.due
        if self.attempt_services.due_at < inf and (request.settlements or self.attempt_services.due_at <= now):
            request.progress, request.lines = self.attempt_services.take()
        if self.claiming:
            room, overlaps = self._room(), self._second.task is not None
            self._planner.plan(request, now, room)
            free = room > 0 and not self._planner.backlog
            self._hand_over.plan(request, now, free=free, held=held, overlaps=overlaps)
        else:
            request.leave = self._hand_over.listed is not None
        return request

    def _write_request(self) -> ExchangeRequest:
        """Return a request that writes the results that can be written now."""
        session, pending = self.session, self.pending
        taken = pending.take() if pending.waiting else []
        if pending.deferred.due_at < inf:
            taken = pending.deferred.hold_back(taken, self._job_of)
        return ExchangeRequest(session.id, taken, briefly=bool(taken and pending.deferred.locked))

    def _job_of(self, run_id: str) -> str | None:
        claim = self.session.held.get(run_id)
        return claim.job_id if claim is not None else None

    def _room(self) -> int:
        """Return how many runs can be claimed, besides those that are being claimed now."""
        return self._executor.room() - self._coming

    async def _take_round_trip(self) -> None:
        if self._second.task is not None and self._second.task.done():
            await self._second.finish()
        if not await self._resolve_doubts():
            return
        if self.pending.deferred.due_at <= monotonic():
            await self._writer.revisit()
            if self._outage.unsure:
                return
        request = self._under_way = self._next_request()
        if request.settlements and self.pending.deferred.elsewhere:
            with self._writer.keeping(request.settlements):
                request.settlements = await self._writer.find_free(request.settlements)
        self._coming += request.limit
        try:
            await self._perform(self._database, request)
        finally:
            self._under_way = None
            self._coming -= request.limit

    def _is_crowded(self) -> bool:
        """Whether there is enough for an overlapping round trip."""
        backlog = self.claiming and self._planner.backlog
        return len(self.pending.waiting) >= CROWD or (backlog and self._room() >= CROWD)

    def _overlap(self) -> None:
        """Begin a second round trip while the first is under way, if there is enough for it.

        It waits while there are notes, which must not come after the result of their run; and while a lease is being
        returned, because a return that is sent again might return what the other round trip has just claimed.
        """
        one = self._under_way
        if one is None or self._outage.failures or self.pending.doubtful or self.session.over or self.results.returning:
            return
        if one.progress or one.lines or one.given or self.attempt_services.due_at < inf or not self._is_crowded():
            return
        if self.pending.deferred.elsewhere or not self._second.ready():
            return
        request = self._write_request()
        if self.claiming:
            self._planner.plan_more(request, self._room())
        if request.settlements or request.positions:
            self._coming += request.limit
            round_trip = self._perform(self._second.database, request)
            self._second.begin(round_trip, partial(self._overlap_ended, request.limit))

    def _overlap_ended(self, coming: int) -> None:
        self._coming -= coming
        if self._outage.failures:
            self._second.rest()
        self._overlap()
        self.wake()

    async def _perform(self, database: Database, request: ExchangeRequest) -> None:
        results = self.results
        try:
            answer = await self._send(database, request)
        except BaseException:
            results.pending.mark_missing_doubtful(request.settlements)
            raise
        if answer is None:
            return
        if answer.claims:
            self.begin(answer.claims, results)
        if answer.given is not None and (given := self._hand_over.find(answer.given, results)):
            self.begin(given, results)
        if answer.acks.released:
            await self._spread(answer.acks.released)
        if request.survey:
            self._upkeep.learn(answer.orphans, answer.chores, answer.due)

    async def _spread(self, queues: frozenset[str]) -> None:
        """Look for runs that became ready because others ended, and notify other workers."""
        self.ring(queues)
        # If the notification cannot be sent, other workers find the runs when they poll.
        with contextlib.suppress(Unavailable, Busy, psycopg.Error):
            await self._database.transact(lambda: iter(ready.ring(queues)))

    async def _send(self, database: Database, request: ExchangeRequest) -> Answer | None:
        """Send a request. Return None if the database did not respond, or did not accept it as a whole."""
        results = self.results
        try:
            answer = await database.transact(partial(exchange, request), several=request.several)
        except (Unavailable, Busy, psycopg.Error, HoldfastError) as error:
            self._planner.restart()
            if fault_of(error) is Fault.REFUSED:
                self.refusal = said(error)
            if not isinstance(error, Unavailable):
                await self.attempt_services.write_notes(request)
            await self._writer.write_failed(request, error)
            return None
        if self._outage.failures:
            self._outage.end(request.worker_id)
        self.refusal = None
        now, news = monotonic(), self._planner.news
        if request.survey:
            self._survey_at = now + self._options.rescue_pause
        if request.settlements or answer.claims:
            self._upkeep.note_activity()
        if request.settlements:
            results.settled(request.settlements, answer.acks)
        if len(answer.noted) < len(request.progress):
            self.attempt_services.put_back_progress(request, answer)
        self._planner.learn(request, answer, now, news)
        if self._hand_over.learn(request, answer, now):
            self._planner.look_soon()
        return answer

    def begin(self, claims: list[Claim], results: AttemptResults | None = None) -> None:
        """Have claimed runs performed; `results` are those of the session that claimed them, if it may be over."""
        results = results or self.results
        session = results.session
        self._hand_over.worked()
        for claim in claims:
            session.held[claim.run_id] = claim
        results.keep(claims)
        if session.over or not self.claiming:
            results.release(claims)
            self.wake()
            return
        results.began(claims)
        for executor, given in self._options.divide(claims):
            executor.give(session.id, given)

    async def _resolve_doubts(self) -> bool:
        """Find out which results were written, if that is in doubt. Return False if the database does not respond."""
        if not self._outage.unsure and not self.pending.doubtful:
            return True
        await self._second.finish()
        return await self._writer.resolve_doubts()

    async def settle_all(self) -> bool:
        """Settle every result that can be settled now. Return False if the database did not respond."""
        await self._writer.revisit()
        while self.pending.waiting or self.pending.doubtful:
            if not await self._resolve_doubts():
                return False
            progress, lines = self.attempt_services.take()
            request = ExchangeRequest(self.session.id, self.pending.take(), progress, lines)
            with self._writer.keeping(request.settlements):
                answer = await self._send(self._database, request) if request.settlements else Answer()
            if answer is None and self._outage.failures:
                return False
        return True
