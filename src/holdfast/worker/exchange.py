"""The exchange: the loop of turns at the database, where ended runs are handed in and new ones taken.

Idle, it looks every few seconds, or when the doorbell rings. Under load every turn settles what ended since the last
one and claims what fits, in one transaction; the batches grow by themselves with the time a turn takes. When the
database is away it keeps what it has and tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Any

from holdfast.domain.execution import Ended, Settled
from holdfast.domain.settling import Failed, HandedBack
from holdfast.domain.states import AttemptStatus
from holdfast.domain.tasks import registry
from holdfast.domain.values import AttemptRef, Claim, Settlement, Verdict
from holdfast.drivers.psycopg_async import INDEXED
from holdfast.observe import emit, heard
from holdfast.sql import attempts, leases
from holdfast.sql.leases import Orphan
from holdfast.sql.statement import Op
from holdfast.worker.completion import Completions
from holdfast.worker.database import UNREACHABLE, Database
from holdfast.worker.desk import AttemptDesk
from holdfast.worker.options import WorkerOptions
from holdfast.worker.picker import Picker
from holdfast.worker.tenure import Tenure
from holdfast.worker.turn import Answer, Errand, turn

DISCOVER_EVERY = 3.0
HAND_BACK_AFTER = 1.0


class Exchange:
    def __init__(self, options: WorkerOptions, database: Database, rescue: Callable[[list[Orphan]], None]) -> None:
        self._options = options
        self._database = database
        self._rescue = rescue
        self._bell = asyncio.Event()
        self._picker = Picker(options.queues)
        self._failures = 0
        self._hungry = True
        self._look_at = 0.0
        self._promote_at = 0.0
        self._orphans_at = 0.0
        self._discovered_at = 0.0
        self._retries_until = 0.0
        self.tenure = Tenure()
        self.completions = Completions()
        self.desk = AttemptDesk(database, options.prepare, lambda: self.tenure, self._bell.set)
        self.claiming = True
        self.idle = False

    def wake(self) -> None:
        self._bell.set()

    def ring(self, queues: Iterable[str]) -> None:
        """A doorbell: these queues may have runs."""
        rung = self._picker.serves(queues)
        if rung:
            self._picker.add(rung)
            self._picker.restart(rung)
            self._hungry = True
            # A ring may be for a run whose time has not come; learn when it does.
            self._promote_at = min(self._promote_at, monotonic() + 0.2)
            self._bell.set()

    def report(self, ended: Sequence[Ended]) -> None:
        """Executors tell here how runs ended."""
        held = self.tenure.held
        known = [one for one in ended if one.claim.run_id in held]
        for one in known:
            if isinstance(one.outcome, Settled):
                held.pop(one.claim.run_id)
                self.tenure.completed += 1
                if heard():
                    self._tell(one.claim, "SUCCEEDED", None)
        self.completions.add(known)
        self._bell.set()

    async def serve(self, until: Callable[[], bool]) -> None:
        """Take turns until `until` says that it is enough."""
        while not until():
            await self._pause()
            if not until():
                await self._take_turn()

    async def _pause(self) -> None:
        """Wait until a turn is worth it."""
        while not self.tenure.over:
            self._bell.clear()
            wait = self._wait()
            if wait <= 0:
                return
            try:
                async with asyncio.timeout(wait):
                    await self._bell.wait()
            except TimeoutError:
                return

    def _wait(self) -> float:
        now = monotonic()
        times = [self._orphans_at - now]
        if self.claiming:
            if self._hungry and self._room() > 0:
                return 0.0
            times.append(self._promote_at - now)
            if not self._hungry:
                times.append(self._look_at - now)
        if self.completions:
            times.append(self.completions.wait(others=len(self.tenure.held) > len(self.completions)))
        notes = self.desk.due_in()
        if notes is not None:
            times.append(notes)
        return min(times)

    def _room(self) -> int:
        return self._options.executor.room()

    def _errand(self) -> Errand:
        now = monotonic()
        errand = Errand(self.tenure.id, settlements=self.completions.take())
        if errand.settlements or self.desk.due_in() == 0.0:
            errand.progress, errand.lines = self.desk.take()
        errand.find_orphans = now >= self._orphans_at
        if not self.claiming:
            return errand
        looking = not self._hungry and (now >= self._look_at or (errand.find_orphans and not self.tenure.held))
        errand.promote = looking or now >= self._promote_at
        errand.discover = looking or (self._hungry and now >= self._discovered_at + DISCOVER_EVERY)
        if self._hungry or (errand.promote and not looking):
            errand.limit = max(0, self._room())
            errand.positions = self._picker.positions() if errand.limit else ()
            errand.discover = errand.discover or (errand.limit > 0 and not errand.positions)
        return errand

    async def _take_turn(self) -> None:
        tenure = self.tenure
        if (self._failures or self.completions.doubtful) and not await self._clear_up():
            return
        errand = self._errand()
        # A claim or an ending deserves the careful plans; a look around is one cheap transaction, or one statement.
        begin = INDEXED if errand.limit or errand.settlements else None
        if begin is None and errand.discover + errand.promote + errand.find_orphans > 1:
            begin = "begin"
        try:
            answer = await self._database.transact(lambda: turn(errand), begin)
        except UNREACHABLE as error:
            self.completions.doubt(errand.settlements)
            self._hungry = True
            await self._away(error)
            return
        self._settled(tenure, errand.settlements, answer.verdicts)
        self._learn(errand, answer)
        if answer.claims:
            self._begin(tenure, answer.claims)
        if answer.orphans:
            self._rescue(answer.orphans)

    def _learn(self, errand: Errand, answer: Answer) -> None:
        now = monotonic()
        if errand.find_orphans:
            self._orphans_at = now + self._options.rescue_every
        if errand.promote:
            self._promote_at = now + (answer.next_due if answer.next_due is not None else 3600.0)
        served: list[str] | None = None
        if answer.queues is not None:
            self._discovered_at = now
            self._picker.know(answer.queues)
            served = self._picker.serves(answer.queues)
            self._hungry = bool(served)
        if errand.positions:
            self._hungry = self._picker.took(answer.claims, errand.limit)
            served = None if answer.claims or self._hungry else []
        if answer.promoted:
            # They may be of queues that had nothing before.
            self._hungry = True
            self._discovered_at = 0.0
        if not self._hungry and (errand.positions or answer.queues is not None):
            pause = self._options.poll_every_listening if self._options.listener.live else self._options.poll_every
            self._look_at = now + pause
        self.idle = (
            served == []
            and not self.tenure.held
            and not self.completions
            and now < self._promote_at
            and now >= self._retries_until
        )

    def begin(self, claims: list[Claim]) -> None:
        """Have runs performed that were claimed for this tenure outside of a turn."""
        self._begin(self.tenure, claims)

    def _begin(self, tenure: Tenure, claims: list[Claim]) -> None:
        for claim in claims:
            tenure.held[claim.run_id] = claim
        if tenure.over or not self.claiming:
            self.completions.add([Ended(claim, HandedBack()) for claim in claims])
            self._bell.set()
            return
        if self._options.executor is self._options.inline:
            self._options.inline.give(tenure.id, claims)
            return
        inline = [claim for claim in claims if _is_inline(claim)]
        if inline:
            self._options.inline.give(tenure.id, inline)
            claims = [claim for claim in claims if not _is_inline(claim)]
        self._options.executor.give(tenure.id, claims)

    def _settled(self, tenure: Tenure, settlements: Sequence[Settlement], verdicts: Sequence[Verdict]) -> None:
        telling = heard()
        for settlement, verdict in zip(settlements, verdicts, strict=True):
            claim = tenure.held.pop(settlement.ref.run_id, None)
            if verdict.accepted:
                if verdict.outcome == "FAILED":
                    tenure.failed += 1
                elif verdict.outcome is not None:
                    tenure.completed += 1
                else:
                    self._comes_back(settlement, claim)
            if telling and claim is not None:
                self._tell(claim, (verdict.outcome or "PENDING") if verdict.accepted else "FENCED", settlement)

    def _comes_back(self, settlement: Settlement, claim: Claim | None) -> None:
        """The run will be attempted again: at once, or when its delay is over."""
        if settlement.delay <= 0:
            if claim is not None:
                self._picker.add([claim.queue])
            self._hungry = True
            return
        due = monotonic() + settlement.delay
        self._promote_at = min(self._promote_at, due)
        self._retries_until = max(self._retries_until, due + 0.1)

    def _tell(self, claim: Claim, status: str, settlement: Settlement | None) -> None:
        fields: dict[str, Any] = {
            "run_id": claim.run_id,
            "payload_hash": claim.payload_hash.hex(),
            "worker_id": self.tenure.id,
            "status": status,
            "attempt_count": claim.number,
            "task": claim.task,
            "queue": claim.queue,
        }
        if settlement is not None:
            fields["elapsed"] = round(settlement.elapsed, 6)
            if settlement.reason:
                fields["reason"] = settlement.reason
            if settlement.error:
                fields["error"] = f"{settlement.error['class']}: {settlement.error['message']}"
            if status == "PENDING":
                fields["delay"] = settlement.delay
        emit("run.refused" if status == "FENCED" else "run.settled", **fields)

    async def _away(self, error: BaseException) -> None:
        """The database did not answer: wait a little, longer each time."""
        self._failures += 1
        if self._failures == 1:
            emit("database.away", worker_id=self.tenure.id, error=str(error) or type(error).__name__)
        self._bell.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(2.0, 0.05 * 2.0 ** min(self._failures, 8))):
                while not self.tenure.over:
                    await self._bell.wait()
                    self._bell.clear()

    async def _clear_up(self) -> bool:
        """After a turn without an answer: which endings were written, and which leases are ours unawares?"""
        tenure = self.tenure
        doubtful = [settlement.ref for settlement in self.completions.doubtful]

        def ask() -> Op[tuple[set[AttemptRef], list[AttemptRef]]]:
            written = yield from attempts.ended_by(tenure.id, doubtful)
            return written, (yield from leases.held(tenure.id))

        try:
            written, held = await self._database.transact(ask)
        except UNREACHABLE as error:
            await self._away(error)
            return False
        for ref in self.completions.resolve(written):
            tenure.held.pop(ref.run_id, None)
        self.hand_back([ref for ref in held if ref.run_id not in tenure.held])
        emit("database.back", worker_id=tenure.id, failures=self._failures)
        self._failures = 0
        return True

    async def settle_all(self) -> bool:
        """Settle every ending there is. False if the database did not answer."""
        while self.completions or self.completions.doubtful:
            if (self._failures or self.completions.doubtful) and not await self._clear_up():
                return False
            settlements = self.completions.take()
            progress, lines = self.desk.take()
            errand = Errand(self.tenure.id, settlements, progress, lines)
            try:
                answer = await self._database.transact(lambda errand=errand: turn(errand), INDEXED)  # type: ignore[misc]
            except UNREACHABLE as error:
                self.completions.doubt(settlements)
                await self._away(error)
                return False
            self._settled(self.tenure, settlements, answer.verdicts)
        return True

    def begin_tenure(self) -> None:
        self.tenure = Tenure()
        self.desk.clear()
        self._picker.restart()
        self._hungry = True

    def hand_back(self, strangers: Iterable[AttemptRef]) -> None:
        """Leases that are ours although we never heard of them go back unused."""
        for ref in strangers:
            emit("lease.returned", run_id=ref.run_id, attempt_count=ref.number, worker_id=self.tenure.id)
            self.completions.put([Settlement(ref, AttemptStatus.CANCELLED, None, excuse=True, reason="handed-back")])
        self._bell.set()

    def hand_back_waiting(self) -> None:
        """Claims that found no slot for a while go back, so that another worker may take them."""
        waiting_for = HAND_BACK_AFTER if self.claiming else 0.0
        for executor in {id(e): e for e in (self._options.executor, self._options.inline)}.values():
            claims = executor.take_back(waiting_for)
            if claims:
                self.completions.add([Ended(claim, HandedBack()) for claim in claims])
                self._bell.set()

    def give_up(self, why: str) -> None:
        """The tenure is over: whatever has not ended was killed, and counts as crashed if that still counts."""
        ended = {s.ref.run_id for s in self.completions.unsettled()}
        error = {"class": "LeaseLost", "message": f"the worker stopped the run: {why}", "traceback": None}
        self.completions.add(
            [
                Ended(claim, Failed(error, reason="crash"))
                for run_id, claim in self.tenure.held.items()
                if run_id not in ended
            ]
        )


def _is_inline(claim: Claim) -> bool:
    task = registry.find(claim.task)
    return task is not None and task.executor == "inline"
