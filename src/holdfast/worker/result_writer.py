"""Writing results whose batch could not be written as a whole.

If a batch is blocked by a lock of another transaction, or contains a value that cannot be stored, it is split: the
blocked results are deferred, an invalid result fails alone, and everything else is written. Nothing here waits long for
a lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import psycopg

from holdfast import ops
from holdfast.domain.errors import HoldfastError
from holdfast.domain.states import Status
from holdfast.domain.values import Settlement
from holdfast.drivers.faults import Fault, fault_of
from holdfast.observe import emit
from holdfast.worker.database import Busy, Database, Unavailable
from holdfast.worker.outages import Outage
from holdfast.worker.results import AttemptResults, about, unstorable
from holdfast.worker.round_trips import ExchangeRequest, exchange

# How long to leave claims alone that were blocked by a lock or rejected.
LOCKED_PAUSE, REFUSED_PAUSE = 0.1, 2.0
# How many results with an unknown lock are retried per check; each of them may wait briefly.
UNEXPLAINED_AT_ONCE = 10


class ResultWriter:
    """Writes the results of the current worker session, in parts, and finds out which results were written."""

    def __init__(
        self,
        database: Database,
        results: Callable[[], AttemptResults],
        outage: Outage,
        spread: Callable[[frozenset[str]], Awaitable[None]],
    ) -> None:
        self._database = database
        self._current = results
        self._outage = outage
        self._spread = spread

    @property
    def _results(self) -> AttemptResults:
        return self._current()

    @contextmanager
    def keeping(self, settlements: Sequence[Settlement]) -> Iterator[None]:
        """Keep these results if the worker is interrupted meanwhile: whether they were written is in doubt."""
        pending = self._results.pending
        try:
            yield
        except BaseException:
            pending.mark_missing_doubtful(settlements)
            raise

    async def write_failed(self, request: ExchangeRequest, error: Exception) -> None:
        """Write the results of a request that failed, in parts, or keep them if the database did not respond."""
        if isinstance(error, Unavailable):
            self._results.pending.mark_doubtful(request.settlements)
            await self._outage.wait(error, self._results.session)
        elif isinstance(error, Busy):
            await self.write_around_locks(request.settlements)
        else:
            emit("exchange.refused", worker_id=request.worker_id, error=f"{type(error).__name__}: {error}")
            await self.write_one_by_one(request.settlements)

    async def write_around_locks(self, settlements: Sequence[Settlement]) -> None:
        """Find out what another transaction has locked, defer the results that need it, and write the rest."""
        if not settlements:
            await asyncio.sleep(LOCKED_PAUSE)
            return
        free = await self.find_free(settlements)
        if free:
            await self._write_in_parts(free)

    async def _write_in_parts(self, settlements: Sequence[Settlement]) -> None:
        """Write these results, in halves if they are blocked by a lock that `find_blocked` does not detect."""
        pending = self._results.pending
        parts = [settlements]
        while parts:
            part = parts.pop()
            try:
                await self._write(part, briefly=True)
            except Unavailable as error:
                pending.mark_doubtful(part)
                pending.put([settlement for rest in reversed(parts) for settlement in rest])
                await self._outage.wait(error, self._results.session)
                return
            except Busy:
                if len(part) == 1:
                    pending.deferred.add_unexplained(part)
                else:
                    middle = len(part) // 2
                    parts += [part[middle:], part[:middle]]
            except (psycopg.Error, HoldfastError):
                await self.write_one_by_one(part)

    async def write_one_by_one(self, settlements: Sequence[Settlement]) -> None:
        """Write each result of a batch separately, so that only the one that cannot be written is deferred or fails."""
        if not settlements:
            await asyncio.sleep(REFUSED_PAUSE)
            return
        free = await self.find_free(settlements)
        for index, settlement in enumerate(free):
            try:
                await self._write_alone(settlement)
            except Unavailable as error:
                self._results.pending.mark_doubtful(free[index:])
                await self._outage.wait(error, self._results.session)
                return

    async def revisit(self) -> None:
        """Check the deferred results again; those that can be written now join the next batch."""
        pending = self._results.pending
        locked, unexplained, refused = pending.deferred.take()
        with self.keeping([*locked, *unexplained, *refused]):
            free = await self.find_free(locked, again=True) if locked else []
            pending.put(free)
            if unexplained[UNEXPLAINED_AT_ONCE:]:
                pending.deferred.add_unexplained(unexplained[UNEXPLAINED_AT_ONCE:])
            for settlement in unexplained[:UNEXPLAINED_AT_ONCE]:
                await self._write_in_parts([settlement])
            if refused:
                await self.write_one_by_one(refused)
        if free or not len(pending.deferred):
            pending.deferred.reset_pause()

    async def resolve_doubts(self) -> bool:
        """Find out which results were written. Return False if the database does not respond yet."""
        results = self._results
        try:
            written, held = await self._database.transact(results.clear_up)
        except (Unavailable, Busy, psycopg.Error) as error:
            await self._outage.wait(error, results.session)
            return False
        results.cleared_up(written, held)
        self._outage.unsure = False
        return True

    async def find_free(self, settlements: Sequence[Settlement], *, again: bool = False) -> list[Settlement]:
        """Return the results that no lock blocks, and defer the others, for the first time or `again`."""
        pending = self._results.pending
        run_ids = [settlement.ref.run_id for settlement in settlements]
        try:
            blocked = await self._database.transact(lambda: ops.find_blocked(run_ids))
        except Unavailable as error:
            # They have not been sent, so their outcome is certain.
            pending.put(settlements)
            await self._outage.wait(error, self._results.session)
            return []
        except (Busy, psycopg.Error):
            pending.deferred.add_locked(settlements, again=again)
            return []
        held_up = {one.run_id for one in blocked}
        locked = [settlement for settlement in settlements if settlement.ref.run_id in held_up]
        if locked:
            pending.deferred.add_locked(locked, blocked, again=again)
            emit("results.deferred", worker_id=self._results.session.id, runs=len(locked))
        else:
            pending.deferred.note_unblocked()
        return [settlement for settlement in settlements if settlement.ref.run_id not in held_up]

    async def _write(self, settlements: Sequence[Settlement], *, briefly: bool = False) -> None:
        results = self._results
        request = ExchangeRequest(results.session.id, settlements, briefly=briefly)
        answer = await self._database.transact(partial(exchange, request), several=True)
        results.settled(settlements, answer.acks)
        if answer.acks.released:
            await self._spread(answer.acks.released)

    async def _write_alone(self, settlement: Settlement) -> None:
        """Write one result. The attempt fails only if its own values cannot be stored."""
        results = self._results
        attempt, last = settlement, False
        while True:
            try:
                await self._write([attempt])
                return
            except Busy:
                results.pending.deferred.add_unexplained([settlement])
                return
            except (psycopg.Error, HoldfastError) as error:
                claim = results.session.held.get(settlement.ref.run_id)
                if claim is not None:
                    fields = about(claim, results.session.id, Status.RUNNING)
                    emit("result.refused", error=f"{type(error).__name__}: {error}", **fields)
                if last or not settlement.begun or fault_of(error) is not Fault.DATA:
                    results.pending.deferred.add_refused(settlement)
                    return
                attempt, last = unstorable(settlement, error), True
