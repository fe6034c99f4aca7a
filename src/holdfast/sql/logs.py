"""Log lines written by runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.domain.records import LogRecord
from holdfast.domain.values import AttemptRef
from holdfast.sql.leases import HELD
from holdfast.sql.statement import Statement, count, each, plain_array, text_array


class LogLine(NamedTuple):
    """A log line to be stored: its attempt, level and message, and its age in seconds."""

    ref: AttemptRef
    level: str
    message: str
    age: float


def add(worker_id: str, lines: Sequence[LogLine]) -> Statement[int]:
    """Add lines of attempts that still hold their lease."""
    return Statement(
        """
        with added as (
            insert into holdfast.logs (run_id, at, attempt, level, message)
            select given.run_id, holdfast.now() - given.age * interval '1 second', given.number, given.level,
                   given.message
            from unnest(%(run_ids)s::uuid[], %(numbers)s::integer[], %(levels)s::text[], %(messages)s::text[],
                        %(ages)s::float8[]) with ordinality
                 as given (run_id, number, level, message, age, place)
            join holdfast.leases on leases.run_id = given.run_id and leases.number = given.number
        """
        + HELD
        + """
            order by given.place
            returning run_id
        )
        select count(*) from added
        """,
        {
            "worker_id": worker_id,
            "run_ids": plain_array([line.ref.run_id for line in lines]),
            "numbers": plain_array([line.ref.number for line in lines]),
            "levels": text_array([line.level for line in lines]),
            "messages": text_array([line.message for line in lines]),
            "ages": plain_array([line.age for line in lines]),
        },
        count,
    )


def of_run(run_id: str, after: int = 0, limit: int = 1000) -> Statement[list[LogRecord]]:
    return Statement(
        """
        select seq, at, attempt, level, message from holdfast.logs
        where run_id = %(run_id)s::uuid and seq > %(after)s order by seq limit %(limit)s
        """,
        {"run_id": run_id, "after": after, "limit": limit},
        each(LogRecord._make),
    )
