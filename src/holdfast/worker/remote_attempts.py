"""Attempts that other processes execute on a cluster: what a worker may find out and note about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import psycopg

from holdfast.domain.errors import DatabaseUnreachable
from holdfast.domain.execution import RemoteAttempt
from holdfast.domain.values import AttemptRef
from holdfast.sql import remote_attempts
from holdfast.sql.statement import Op, Statement
from holdfast.worker.database import Busy, Database, Unavailable, said

T = TypeVar("T")

AT_ONCE = 50


class DatabaseRemoteAttempts:
    """Raises DatabaseUnreachable if the database does not respond: the caller tries again later."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def look_after(self, address: str, every: float) -> list[RemoteAttempt]:
        return await self._do(remote_attempts.look_after(address, every, AT_ONCE))

    async def note(
        self, attempt: RemoteAttempt, copied: int, lines: Sequence[tuple[str, str]], details: Mapping[str, Any]
    ) -> bool:
        noted = await self._do(remote_attempts.note(attempt, copied, lines, details))
        return noted > 0

    async def over(self, refs: Sequence[AttemptRef]) -> set[AttemptRef]:
        return await self._do(remote_attempts.over(refs))

    async def _do(self, statement: Statement[T]) -> T:
        try:
            return await self._database.transact(lambda: _one(statement))
        except (Unavailable, Busy, psycopg.Error) as error:
            raise DatabaseUnreachable(f"Postgres does not respond: {said(error)}") from error


def _one(statement: Statement[T]) -> Op[T]:
    return (yield from statement)
