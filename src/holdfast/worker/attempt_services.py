"""Attempt services: running attempts report progress, write log lines, keep steps and submit children."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from time import monotonic
from typing import Any, TypeVar

import psycopg

from holdfast import ops
from holdfast.domain.errors import DatabaseUnreachable, HoldfastError, LeaseLost
from holdfast.domain.ids import derived_id
from holdfast.domain.values import AttemptRef, KnownAs
from holdfast.observe import emit
from holdfast.sql import children, leases, steps, take_over
from holdfast.sql.logs import LogLine
from holdfast.sql.statement import Op, Statement
from holdfast.worker.database import Busy, Database, Unavailable, said
from holdfast.worker.options import Prepare
from holdfast.worker.round_trips import Answer, ExchangeRequest, exchange
from holdfast.worker.session import WorkerSession

T = TypeVar("T")

# Progress and log lines are written this often at most.
FLUSH_EVERY = 0.5
LINES_AT_MOST = 10_000
LINE_LENGTH = 16_000


class DatabaseAttemptServices:
    """Keeps notes (progress and log lines) for the next round trip, and answers questions at once."""

    def __init__(
        self, database: Database, prepare: Prepare, session: Callable[[], WorkerSession], wake: Callable[[], None]
    ) -> None:
        self._database = database
        self._prepare = prepare
        self._session = session
        self._wake = wake
        self._progress: dict[AttemptRef, str] = {}
        self._lines: list[tuple[AttemptRef, str, str, float]] = []
        self._flushed_at = 0.0
        self.due_at = inf
        """When the notes have to be written; infinity if there are none."""

    def note_progress(self, ref: AttemptRef, report: str) -> None:
        self._progress[ref] = report
        self.due_at = self._flushed_at + FLUSH_EVERY
        self._wake()

    def note_log(self, ref: AttemptRef, level: str, message: str) -> None:
        text = message[:LINE_LENGTH].replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
        if len(self._lines) < LINES_AT_MOST:
            self._lines.append((ref, level, text, monotonic()))
        self.due_at = self._flushed_at + FLUSH_EVERY
        self._wake()

    def take(self) -> tuple[list[tuple[AttemptRef, str]], list[LogLine]]:
        """Take all notes, to write them now."""
        now = self._flushed_at = monotonic()
        progress = list(self._progress.items())
        lines = [LogLine(ref, level, text, now - at) for ref, level, text, at in self._lines]
        self.clear()
        return progress, lines

    def put_back(self, progress: Iterable[tuple[AttemptRef, str]], lines: Sequence[LogLine] = ()) -> None:
        """Put back notes that were not written. Newer progress of the same attempt is kept."""
        now = monotonic()
        self._progress = dict(progress) | self._progress
        self._lines[:0] = [(line.ref, line.level, line.message, now - line.age) for line in lines]
        if self._progress or self._lines:
            self.due_at = self._flushed_at + FLUSH_EVERY

    def put_back_progress(self, request: ExchangeRequest, answer: Answer) -> None:
        """Put back progress whose lease was locked; it is written later, as long as its attempt lasts."""
        noted = set(answer.noted)
        held = self._session().held
        self.put_back(
            (ref, report)
            for ref, report in request.progress
            if ref not in noted and (claim := held.get(ref.run_id)) is not None and claim.ref == ref
        )

    async def write_notes(self, request: ExchangeRequest) -> None:
        """Write the notes of a batch that was rolled back, before its results, which end the leases that notes need."""
        if not request.progress and not request.lines:
            return
        notes = ExchangeRequest(request.worker_id, progress=request.progress, lines=request.lines)
        try:
            answer = await self._database.transact(lambda: exchange(notes), several=True)
            self.put_back_progress(notes, answer)
        except Busy:
            self.put_back(notes.progress, notes.lines)
        except (Unavailable, psycopg.Error) as error:
            emit("notes.lost", worker_id=request.worker_id, lines=len(request.lines), error=said(error))

    def clear(self) -> None:
        self._progress.clear()
        self._lines.clear()
        self.due_at = inf

    def _worker_of(self, ref: AttemptRef) -> str:
        session = self._session()
        if session.over or ref.run_id not in session.held:
            raise LeaseLost(f"attempt {ref.number} of run {ref.run_id} no longer holds its lease")
        return session.id

    async def _insist(self, ref: AttemptRef, make_op: Callable[[], Op[T]]) -> T:
        """Repeat an operation until the database responds or the lease is lost. It is harmless to repeat."""
        pause = 0.05
        while True:
            try:
                return await self._database.transact(make_op)
            except (Unavailable, Busy):
                await asyncio.sleep(pause)
                pause = min(2.0, pause * 2)
                self._worker_of(ref)

    async def find_step(self, ref: AttemptRef, name: str) -> str | None:
        _check_name(name)
        return await self._insist(ref, lambda: _one(steps.find(ref.run_id, name)))

    async def record_step(self, ref: AttemptRef, name: str, result: str) -> None:
        worker_id = self._worker_of(ref)
        if not await self._insist(ref, lambda: _one(steps.record(worker_id, ref, name, result))):
            raise LeaseLost(
                f"step {name!r} was not stored: attempt {ref.number} of run {ref.run_id} no longer holds its lease"
            )

    async def submit(self, ref: AttemptRef, task: str, parameters: Any, options: Mapping[str, Any]) -> str:
        self._worker_of(ref)
        given = dict(options)
        child = str(given.pop("child"))
        key = given.pop("key", None)
        prepared = self._prepare(task, parameters, given)
        run = replace(
            prepared,
            id=derived_id(ref.run_id, child),
            parent_id=ref.run_id,
            child_key=key,
            job_id=self._session().held[ref.run_id].job_id,
            known_as=KnownAs(ref.run_id, child),
        )
        (made,) = await self._insist(ref, lambda: ops.add_tasks([run], ref))
        return made.run.id

    async def describe(self, ref: AttemptRef, details: Mapping[str, Any]) -> None:
        worker_id = self._worker_of(ref)
        if not await self._insist(ref, lambda: _one(take_over.describe(worker_id, ref, details))):
            raise LeaseLost(f"attempt {ref.number} of run {ref.run_id} no longer holds its lease")

    async def still_held(self, refs: Sequence[AttemptRef]) -> set[AttemptRef]:
        worker_id = self._session().id
        try:
            return set(refs).intersection(await self._database.transact(lambda: _one(leases.held(worker_id))))
        except (Unavailable, Busy) as error:
            raise DatabaseUnreachable(f"Postgres does not respond: {error}") from error

    async def stored_children(self, ref: AttemptRef) -> dict[str, str]:
        return await self._insist(ref, lambda: ops.stored_children(ref.run_id))


def _one(statement: Statement[T]) -> Op[T]:
    return (yield from statement)


def _check_name(name: str) -> None:
    if not name or "\0" in name or len(name) > 255:
        raise HoldfastError("a step name must be 1 to 255 characters, without NUL")
    if name.startswith(children.PREFIX):
        raise HoldfastError(f"step names that start with {children.PREFIX} are reserved; choose another name")
