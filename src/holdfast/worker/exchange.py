"""The exchange: the loop of turns at the database, where ended runs are handed in and new ones taken.

Under load every turn settles what ended since the last one and claims what fits, in one transaction; the batches grow
by themselves with the time that a turn takes. If enough for another batch has gathered while a turn is under way, a
second one is taken beside it, on a connection of its own: so this process works while the server does. Idle, it looks
every few seconds, or when the doorbell rings. When the database is away it keeps what it has and tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from time import monotonic

import psycopg

from holdfast.domain.errors import HoldfastError
from holdfast.domain.execution import INLINE, Ended, Executor
from holdfast.domain.settling import is_readable
from holdfast.domain.states import Status
from holdfast.domain.values import AttemptRef, Claim, Settlement
from holdfast.drivers.faults import Fault, fault_of
from holdfast.observe import emit
from holdfast.sql import ready
from holdfast.worker.attempt_results import AttemptResults, about
from holdfast.worker.attempt_services import DatabaseAttemptServices
from holdfast.worker.claim_planner import ClaimPlanner
from holdfast.worker.database import Busy, Database, Unavailable, said
from holdfast.worker.options import WorkerOptions
from holdfast.worker.pending_results import PendingResults
from holdfast.worker.round_trip import Answer, ExchangeRequest, turn
from holdfast.worker.second_connection import SecondConnection
from holdfast.worker.session import WorkerSession
from holdfast.worker.upkeep import Upkeep
from holdfast.worker.writing import ResultWriter

HAND_BACK_AFTER = 1.0
LONGEST_PAUSE = 2.0
# So many results, or so much room, are worth a turn beside another one.
CROWD = 100


class Exchange:
    def __init__(self, options: WorkerOptions, database: Database, second: Database, upkeep: Upkeep) -> None:
        self._options = options
        self._database = database
        self._upkeep = upkeep
        self._under_way: ExchangeRequest | None = None
        self._second = SecondConnection(second)
        self._coming = 0
        self._bell = asyncio.Event()
        self._planner = ClaimPlanner(options)
        self._failures = 0
        self._unsure = False
        self._survey_at = 0.0
        self.claiming = True
        self.refusal: str | None = None
        self.results = self._new_results()
        self._writer = ResultWriter(database, lambda: self.results, self._away, self._spread)
        self.attempt_services = DatabaseAttemptServices(database, options.prepare, lambda: self.session, self.wake)

    @property
    def session(self) -> WorkerSession:
        return self.results.session

    @property
    def pending(self) -> PendingResults:
        return self.results.pending

    @property
    def idle(self) -> bool:
        """There is nothing to do, here or in the queues."""
        busy = self.session.held or self.pending or self.pending.doubtful or self._second.under_way
        return not busy and self._planner.sated(monotonic())

    @property
    def has_unsettled(self) -> bool:
        """Whether there are results that have not been written yet."""
        return bool(self.pending.unsettled())

    def begin_session(self) -> None:
        """Start over under a fresh id."""
        self.results = self._new_results()
        self.attempt_services.clear()
        self._planner.restart()

    def _new_results(self) -> AttemptResults:
        quietly = self._options.default_executor == INLINE
        return AttemptResults(WorkerSession(), self._planner.expect, quietly=quietly, figures=self._options.figures)

    def wake(self) -> None:
        self._bell.set()

    def ring(self, queues: Iterable[str]) -> None:
        """A doorbell: these queues may have runs."""
        if self._planner.ring(queues):
            self.wake()

    def look_soon(self) -> None:
        """Something may have been missed."""
        self._planner.look_soon()
        self.wake()

    def report(self, ended: Sequence[Ended], executor: str | None = None) -> None:
        """Executors tell here how runs ended; `executor` names another than the worker's usual one."""
        self.results.report(ended, executor)
        self._relieve()
        self.wake()

    def return_unknown_leases(self, refs: Iterable[AttemptRef]) -> None:
        """Leases that are ours although we never heard of them."""
        self.results.return_unknown_leases(refs)
        self.wake()

    def hand_back_waiting(self) -> None:
        """Claims that found no slot for a while go back, so that another worker may take them."""
        for executor in self._options.executors.values():
            self.results.release(executor.take_back(HAND_BACK_AFTER if self.claiming else 0.0))
        if self.pending:
            self.wake()

    async def serve(self, until: Callable[[], bool]) -> None:
        """Take turns until `until` says that it is enough."""
        try:
            while not until():
                await self._pause(until)
                if not until():
                    await self._take_turn()
            await self._second.alone()
        except asyncio.CancelledError:
            await self._second.give_up()
            raise

    async def _pause(self, until: Callable[[], bool]) -> None:
        """Wait until a turn is worth it, or somebody wants to be heard."""
        self._bell.clear()
        wait = self._wait()
        while wait > 0 and not self.session.over and not until():
            try:
                async with asyncio.timeout(wait):
                    await self._bell.wait()
            except TimeoutError:
                return
            self._bell.clear()
            wait = self._wait()
            if not self.claiming:
                return

    def _wait(self) -> float:
        now = monotonic()
        times = [self._survey_at - now]
        if self._second.failed:
            return 0.0
        if self._second.under_way and not self._crowded():
            return max(times[0], 0.001)
        if self.claiming:
            times.append(self._planner.wait(now, self._room()))
        if self.pending:
            times.append(self.pending.wait(others=len(self.session.held) > len(self.pending)))
        times += [due for due in (self.attempt_services.due_in(), self.pending.deferred.due_in()) if due is not None]
        return min(times)

    def _errand(self) -> ExchangeRequest:
        now = monotonic()
        request = ExchangeRequest(self.session.id, self._results(), survey=now >= self._survey_at)
        if request.survey:
            request.due = self._upkeep.due
        if request.settlements or self.attempt_services.due_in() == 0.0:
            request.progress, request.lines = self.attempt_services.take()
        if self.claiming:
            self._planner.plan(request, now, self._room())
        return request

    def _results(self) -> list[Settlement]:
        """Return the results that can be written now."""
        return self.pending.deferred.keep_back(self.pending.take(), self._job_of)

    def _job_of(self, run_id: str) -> str | None:
        claim = self.session.held.get(run_id)
        return claim.job_id if claim is not None else None

    def _room(self) -> int:
        """How many runs can be taken, besides those that are on their way."""
        return self._options.executor.room() - self._coming

    async def _take_turn(self) -> None:
        if self._second.failed:
            await self._second.alone()
        if not await self._clear_up():
            return
        if self.pending.deferred.due_in() == 0.0:
            await self._writer.revisit()
        request = self._under_way = self._errand()
        if request.settlements and self.pending.deferred.elsewhere:
            request.settlements = await self._writer.find_free(request.settlements)
        self._coming += request.limit
        try:
            await self._turn(self._database, request)
        finally:
            self._under_way = None
            self._coming -= request.limit

    def _crowded(self) -> bool:
        """There is enough for a turn of its own."""
        hungry = self.claiming and self._planner.hungry
        return len(self.pending) >= CROWD or (hungry and self._room() >= CROWD)

    def _relieve(self) -> None:
        """Take a turn beside the one that is under way, if there is enough for it.

        It carries no notes. Those that tell of a run must not come after its ending, so while there are any it waits.
        """
        one = self._under_way
        if one is None or self._failures or self.pending.doubtful or self.session.over:
            return
        if one.progress or one.lines or self.attempt_services.due_in() is not None or not self._crowded():
            return
        if self.pending.deferred.elsewhere or not self._second.ready():
            return
        request = ExchangeRequest(self.session.id, self._results())
        if self.claiming:
            self._planner.plan_more(request, self._room())
        if request.settlements or request.positions:
            self._coming += request.limit
            self._second.take(self._turn(self._second.database, request), partial(self._relieved, request.limit))

    def _relieved(self, coming: int) -> None:
        self._coming -= coming
        if self._failures:
            self._second.rest()
        self._relieve()
        self.wake()

    async def _turn(self, database: Database, request: ExchangeRequest) -> None:
        results = self.results
        answer = await self._do(database, request)
        if answer is None:
            return
        if answer.claims:
            self._begin(results, answer.claims)
        if answer.acks.released:
            await self._spread(answer.acks.released)
        if answer.orphans:
            self._upkeep.rescue(answer.orphans)
        if answer.chores:
            self._upkeep.call(answer.chores)
        if answer.due:
            self._upkeep.expect(answer.due)

    async def _spread(self, queues: frozenset[str]) -> None:
        """Runs became ready because others ended: look for them here, and let other workers know."""
        self.ring(queues)
        # If the notification cannot be sent, other workers find the runs when they poll.
        with contextlib.suppress(Unavailable, Busy, psycopg.Error):
            await self._database.transact(lambda: iter(ready.ring(queues)))

    async def _do(self, database: Database, request: ExchangeRequest) -> Answer | None:
        """Do an request. None if the database did not answer, or would not take it as a whole."""
        results = self.results
        try:
            answer = await database.transact(lambda: turn(request), several=request.several)
        except Unavailable as error:
            results.pending.doubt(request.settlements)
            self._planner.restart()
            await self._away(error)
            return None
        except Busy:
            self._planner.restart()
            await self._write_notes(request)
            await self._writer.write_around_locks(request.settlements)
            return None
        except (psycopg.Error, HoldfastError) as error:
            emit("turn.refused", worker_id=request.worker_id, error=f"{type(error).__name__}: {error}")
            if fault_of(error) is Fault.REFUSED:
                self.refusal = said(error)
            self._planner.restart()
            await self._write_notes(request)
            await self._writer.write_one_by_one(request.settlements)
            return None
        except BaseException:
            results.pending.doubt(request.settlements)
            raise
        if self._failures:
            emit("database.back", worker_id=request.worker_id, failures=self._failures)
            self._failures = 0
        self.refusal = None
        now, news = monotonic(), self._planner.news
        if request.survey:
            self._survey_at = now + self._options.rescue_pause
        if request.settlements or answer.claims:
            self._upkeep.note_activity()
        results.settled(request.settlements, answer.acks)
        self._keep_progress(request, answer)
        self._planner.learn(request, answer, now, news)
        return answer

    async def _write_notes(self, request: ExchangeRequest) -> None:
        """Write the notes of a batch that was rolled back, before its results, which end the leases that notes need."""
        if not request.progress and not request.lines:
            return
        notes = ExchangeRequest(request.worker_id, progress=request.progress, lines=request.lines)
        try:
            self._keep_progress(notes, await self._database.transact(lambda: turn(notes), several=True))
        except Busy:
            self.attempt_services.put_back(notes.progress, notes.lines)
        except (Unavailable, psycopg.Error) as error:
            emit("notes.lost", worker_id=request.worker_id, lines=len(request.lines), error=said(error))

    def _keep_progress(self, request: ExchangeRequest, answer: Answer) -> None:
        """Defer progress whose lease is locked; it is written later, as long as its attempt lasts."""
        if len(answer.noted) < len(request.progress):
            noted = set(answer.noted)
            held = self.session.held
            self.attempt_services.put_back(
                (ref, report)
                for ref, report in request.progress
                if ref not in noted and (claim := held.get(ref.run_id)) is not None and claim.ref == ref
            )

    def _begin(self, results: AttemptResults, claims: list[Claim]) -> None:
        session = results.session
        for claim in claims:
            session.held[claim.run_id] = claim
        results.pending.keep(claims)
        if session.over or not self.claiming:
            results.release(claims)
            self.wake()
            return
        for claim in claims:
            if not is_readable(claim.policy):
                emit("run.policy_unreadable", policy=claim.policy, **about(claim, session.id, Status.RUNNING))
        results.began(claims)
        for executor, given in self._by_executor(claims):
            executor.give(session.id, given)

    def _by_executor(self, claims: list[Claim]) -> Iterable[tuple[Executor, list[Claim]]]:
        """Divide claims among the executors of this worker. A run of a task that it does not know fails in any."""
        if len(self._options.executors) == 1:
            return [(self._options.executor, claims)]
        divided: dict[str, tuple[Executor, list[Claim]]] = {}
        for claim in claims:
            executor = self._options.executor_of(claim.task) or self._options.executor
            divided.setdefault(executor.name, (executor, []))[1].append(claim)
        return divided.values()

    def begin(self, claims: list[Claim]) -> None:
        """Have runs performed that were claimed for this session outside of a turn."""
        self._begin(self.results, claims)

    async def _away(self, error: BaseException) -> None:
        """The database did not answer: wait a little, longer each time."""
        self._failures += 1
        self._unsure = True
        if self._failures == 1:
            emit("database.away", worker_id=self.session.id, error=said(error))
        self._bell.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(LONGEST_PAUSE, 0.05 * 2.0 ** min(self._failures, 8))):
                while not self.session.over:
                    await self._bell.wait()
                    self._bell.clear()

    async def _clear_up(self) -> bool:
        """Settle what is in doubt, once the database answers again."""
        if not self._unsure and not self.pending.doubtful:
            return True
        await self._second.alone()
        results = self.results
        try:
            written, held = await self._database.transact(results.clear_up)
        except (Unavailable, Busy, psycopg.Error) as error:
            await self._away(error)
            return False
        results.cleared_up(written, held)
        self._unsure = False
        return True

    async def settle_all(self) -> bool:
        """Settle every result that can be settled now. False if the database did not answer."""
        await self._writer.revisit()
        while self.pending or self.pending.doubtful:
            if not await self._clear_up():
                return False
            progress, lines = self.attempt_services.take()
            request = ExchangeRequest(self.session.id, self.pending.take(), progress, lines)
            if request.settlements and await self._do(self._database, request) is None and self._failures:
                return False
        return True
