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
from holdfast.domain.execution import Ended, Executor
from holdfast.domain.settling import is_readable
from holdfast.domain.states import Status
from holdfast.domain.tasks import registry
from holdfast.domain.values import AttemptRef, Claim, Settlement
from holdfast.drivers.faults import Fault, fault_of
from holdfast.observe import emit
from holdfast.sql import ready
from holdfast.worker.appetite import Appetite
from holdfast.worker.beside import Beside
from holdfast.worker.completion import Completions
from holdfast.worker.database import Busy, Database, Unavailable, said
from holdfast.worker.desk import AttemptDesk
from holdfast.worker.endings import Endings, about
from holdfast.worker.options import WorkerOptions
from holdfast.worker.tenure import Tenure
from holdfast.worker.turn import Answer, Errand, turn
from holdfast.worker.upkeep import Upkeep
from holdfast.worker.writing import ResultWriter

HAND_BACK_AFTER = 1.0
LONGEST_PAUSE = 2.0
# So many endings, or so much room, are worth a turn beside another one.
CROWD = 100


class Exchange:
    def __init__(self, options: WorkerOptions, database: Database, second: Database, upkeep: Upkeep) -> None:
        self._options = options
        self._database = database
        self._upkeep = upkeep
        self._under_way: Errand | None = None
        self._beside = Beside(second)
        self._coming = 0
        self._bell = asyncio.Event()
        self._appetite = Appetite(options)
        self._failures = 0
        self._unsure = False
        self._survey_at = 0.0
        self.claiming = True
        self.refusal: str | None = None
        self.endings = self._new_endings()
        self._writer = ResultWriter(database, lambda: self.endings, self._away, self._spread)
        self.desk = AttemptDesk(database, options.prepare, lambda: self.tenure, self.wake)

    @property
    def tenure(self) -> Tenure:
        return self.endings.tenure

    @property
    def completions(self) -> Completions:
        return self.endings.completions

    @property
    def idle(self) -> bool:
        """There is nothing to do, here or in the queues."""
        busy = self.tenure.held or self.completions or self.completions.doubtful or self._beside.under_way
        return not busy and self._appetite.sated(monotonic())

    @property
    def has_unsettled(self) -> bool:
        """Whether there are results that have not been written yet."""
        return bool(self.completions.unsettled())

    def begin_tenure(self) -> None:
        """Start over under a fresh id."""
        self.endings = self._new_endings()
        self.desk.clear()
        self._appetite.restart()

    def _new_endings(self) -> Endings:
        quietly = self._options.executor is self._options.inline
        return Endings(Tenure(), self._appetite.expect, quietly=quietly, figures=self._options.figures)

    def wake(self) -> None:
        self._bell.set()

    def ring(self, queues: Iterable[str]) -> None:
        """A doorbell: these queues may have runs."""
        if self._appetite.ring(queues):
            self.wake()

    def look_soon(self) -> None:
        """Something may have been missed."""
        self._appetite.look_soon()
        self.wake()

    def report(self, ended: Sequence[Ended], executor: str | None = None) -> None:
        """Executors tell here how runs ended; `executor` names another than the worker's usual one."""
        self.endings.report(ended, executor)
        self._relieve()
        self.wake()

    def return_strangers(self, refs: Iterable[AttemptRef]) -> None:
        """Leases that are ours although we never heard of them."""
        self.endings.return_strangers(refs)
        self.wake()

    def hand_back_waiting(self) -> None:
        """Claims that found no slot for a while go back, so that another worker may take them."""
        for executor in self._executors():
            self.endings.release(executor.take_back(HAND_BACK_AFTER if self.claiming else 0.0))
        if self.completions:
            self.wake()

    def _executors(self) -> list[Executor]:
        return list({id(one): one for one in (self._options.executor, self._options.inline)}.values())

    async def serve(self, until: Callable[[], bool]) -> None:
        """Take turns until `until` says that it is enough."""
        try:
            while not until():
                await self._pause(until)
                if not until():
                    await self._take_turn()
            await self._beside.alone()
        except asyncio.CancelledError:
            await self._beside.give_up()
            raise

    async def _pause(self, until: Callable[[], bool]) -> None:
        """Wait until a turn is worth it, or somebody wants to be heard."""
        self._bell.clear()
        wait = self._wait()
        while wait > 0 and not self.tenure.over and not until():
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
        if self._beside.failed:
            return 0.0
        if self._beside.under_way and not self._crowded():
            return max(times[0], 0.001)
        if self.claiming:
            times.append(self._appetite.wait(now, self._room()))
        if self.completions:
            times.append(self.completions.wait(others=len(self.tenure.held) > len(self.completions)))
        times += [due for due in (self.desk.due_in(), self.completions.deferred.due_in()) if due is not None]
        return min(times)

    def _errand(self) -> Errand:
        now = monotonic()
        errand = Errand(self.tenure.id, self._results(), survey=now >= self._survey_at)
        if errand.settlements or self.desk.due_in() == 0.0:
            errand.progress, errand.lines = self.desk.take()
        if self.claiming:
            self._appetite.plan(errand, now, self._room())
        return errand

    def _results(self) -> list[Settlement]:
        """Return the results that can be written now."""
        return self.completions.deferred.keep_back(self.completions.take(), self._job_of)

    def _job_of(self, run_id: str) -> str | None:
        claim = self.tenure.held.get(run_id)
        return claim.job_id if claim is not None else None

    def _room(self) -> int:
        """How many runs can be taken, besides those that are on their way."""
        return self._options.executor.room() - self._coming

    async def _take_turn(self) -> None:
        if self._beside.failed:
            await self._beside.alone()
        if not await self._clear_up():
            return
        if self.completions.deferred.due_in() == 0.0:
            await self._writer.revisit()
        errand = self._under_way = self._errand()
        if errand.settlements and self.completions.deferred.elsewhere:
            errand.settlements = await self._writer.find_free(errand.settlements)
        self._coming += errand.limit
        try:
            await self._turn(self._database, errand)
        finally:
            self._under_way = None
            self._coming -= errand.limit

    def _crowded(self) -> bool:
        """There is enough for a turn of its own."""
        hungry = self.claiming and self._appetite.hungry
        return len(self.completions) >= CROWD or (hungry and self._room() >= CROWD)

    def _relieve(self) -> None:
        """Take a turn beside the one that is under way, if there is enough for it.

        It carries no notes. Those that tell of a run must not come after its ending, so while there are any it waits.
        """
        one = self._under_way
        if one is None or self._failures or self.completions.doubtful or self.tenure.over:
            return
        if one.progress or one.lines or self.desk.due_in() is not None or not self._crowded():
            return
        if self.completions.deferred.elsewhere or not self._beside.ready():
            return
        errand = Errand(self.tenure.id, self._results())
        if self.claiming:
            self._appetite.plan_more(errand, self._room())
        if errand.settlements or errand.positions:
            self._coming += errand.limit
            self._beside.take(self._turn(self._beside.database, errand), partial(self._relieved, errand.limit))

    def _relieved(self, coming: int) -> None:
        self._coming -= coming
        if self._failures:
            self._beside.rest()
        self._relieve()
        self.wake()

    async def _turn(self, database: Database, errand: Errand) -> None:
        endings = self.endings
        answer = await self._do(database, errand)
        if answer is None:
            return
        if answer.claims:
            self._begin(endings, answer.claims)
        if answer.verdicts.released:
            await self._spread(answer.verdicts.released)
        if answer.orphans:
            self._upkeep.rescue(answer.orphans)
        if answer.chores:
            self._upkeep.call(answer.chores)

    async def _spread(self, queues: frozenset[str]) -> None:
        """Runs became ready because others ended: look for them here, and let other workers know."""
        self.ring(queues)
        # If the notification cannot be sent, other workers find the runs when they poll.
        with contextlib.suppress(Unavailable, Busy, psycopg.Error):
            await self._database.transact(lambda: iter(ready.ring(queues)))

    async def _do(self, database: Database, errand: Errand) -> Answer | None:
        """Do an errand. None if the database did not answer, or would not take it as a whole."""
        endings = self.endings
        try:
            answer = await database.transact(lambda: turn(errand), several=errand.several)
        except Unavailable as error:
            endings.completions.doubt(errand.settlements)
            self._appetite.restart()
            await self._away(error)
            return None
        except Busy:
            self._appetite.restart()
            await self._write_notes(errand)
            await self._writer.write_around_locks(errand.settlements)
            return None
        except (psycopg.Error, HoldfastError) as error:
            emit("turn.refused", worker_id=errand.worker_id, error=f"{type(error).__name__}: {error}")
            if fault_of(error) is Fault.REFUSED:
                self.refusal = said(error)
            self._appetite.restart()
            await self._write_notes(errand)
            await self._writer.write_one_by_one(errand.settlements)
            return None
        except BaseException:
            endings.completions.doubt(errand.settlements)
            raise
        if self._failures:
            emit("database.back", worker_id=errand.worker_id, failures=self._failures)
            self._failures = 0
        self.refusal = None
        now, news = monotonic(), self._appetite.news
        if errand.survey:
            self._survey_at = now + self._options.rescue_pause
        if errand.settlements or answer.claims:
            self._upkeep.note_activity()
        endings.settled(errand.settlements, answer.verdicts)
        self._keep_progress(errand, answer)
        self._appetite.learn(errand, answer, now, news)
        return answer

    async def _write_notes(self, errand: Errand) -> None:
        """Write the notes of a batch that was rolled back, before its results, which end the leases that notes need."""
        if not errand.progress and not errand.lines:
            return
        notes = Errand(errand.worker_id, progress=errand.progress, lines=errand.lines)
        try:
            self._keep_progress(notes, await self._database.transact(lambda: turn(notes), several=True))
        except Busy:
            self.desk.put_back(notes.progress, notes.lines)
        except (Unavailable, psycopg.Error) as error:
            emit("notes.lost", worker_id=errand.worker_id, lines=len(errand.lines), error=said(error))

    def _keep_progress(self, errand: Errand, answer: Answer) -> None:
        """Defer progress whose lease is locked; it is written later, as long as its attempt lasts."""
        if len(answer.noted) < len(errand.progress):
            noted = set(answer.noted)
            held = self.tenure.held
            self.desk.put_back(
                (ref, report)
                for ref, report in errand.progress
                if ref not in noted and (claim := held.get(ref.run_id)) is not None and claim.ref == ref
            )

    def _begin(self, endings: Endings, claims: list[Claim]) -> None:
        tenure = endings.tenure
        for claim in claims:
            tenure.held[claim.run_id] = claim
        endings.completions.keep(claims)
        if tenure.over or not self.claiming:
            endings.release(claims)
            self.wake()
            return
        for claim in claims:
            if not is_readable(claim.policy):
                emit("run.policy_unreadable", policy=claim.policy, **about(claim, tenure.id, Status.RUNNING))
        endings.began(claims)
        inline = self._options.inline
        if self._options.executor is not inline:
            tiny = [claim for claim in claims if _is_inline(claim)]
            if tiny:
                inline.give(tenure.id, tiny)
                claims = [claim for claim in claims if not _is_inline(claim)]
        if claims:
            self._options.executor.give(tenure.id, claims)

    def begin(self, claims: list[Claim]) -> None:
        """Have runs performed that were claimed for this tenure outside of a turn."""
        self._begin(self.endings, claims)

    async def _away(self, error: BaseException) -> None:
        """The database did not answer: wait a little, longer each time."""
        self._failures += 1
        self._unsure = True
        if self._failures == 1:
            emit("database.away", worker_id=self.tenure.id, error=said(error))
        self._bell.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(LONGEST_PAUSE, 0.05 * 2.0 ** min(self._failures, 8))):
                while not self.tenure.over:
                    await self._bell.wait()
                    self._bell.clear()

    async def _clear_up(self) -> bool:
        """Settle what is in doubt, once the database answers again."""
        if not self._unsure and not self.completions.doubtful:
            return True
        await self._beside.alone()
        endings = self.endings
        try:
            written, held = await self._database.transact(endings.clear_up)
        except (Unavailable, Busy, psycopg.Error) as error:
            await self._away(error)
            return False
        endings.cleared_up(written, held)
        self._unsure = False
        return True

    async def settle_all(self) -> bool:
        """Settle every result that can be settled now. False if the database did not answer."""
        await self._writer.revisit()
        while self.completions or self.completions.doubtful:
            if not await self._clear_up():
                return False
            progress, lines = self.desk.take()
            errand = Errand(self.tenure.id, self.completions.take(), progress, lines)
            if errand.settlements and await self._do(self._database, errand) is None and self._failures:
                return False
        return True


def _is_inline(claim: Claim) -> bool:
    task = registry.find(claim.task)
    return task is not None and task.executor == "inline"
