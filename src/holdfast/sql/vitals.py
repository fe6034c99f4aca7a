"""Figures about the whole."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.sql.statement import Statement, each


class Figures(NamedTuple):
    """Workers that live, runs that could be claimed, and runs that a worker left behind when it stopped."""

    workers_alive: int
    queue_depth: int
    stale_tasks: int


def figures(stale_after: float) -> Statement[Figures]:
    """The figures; a run is stale once its lease passed longer than `stale_after` seconds ago."""
    return Statement(
        """
        select (select count(*) from holdfast.workers where expires_at > holdfast.now()),
               (select count(*) from holdfast.ready),
               (select count(*) from holdfast.leases
                where not exists (select from holdfast.workers
                                  where workers.id = leases.worker_id
                                    and workers.expires_at > holdfast.now() - %(stale_after)s * interval '1 second'))
        """,
        {"stale_after": stale_after},
        lambda found: Figures(*found[0]),
    )


class WorkerFigure(NamedTuple):
    """A live worker, and for how many seconds it was not heard."""

    name: str
    heartbeat_age: float


def workers() -> Statement[list[WorkerFigure]]:
    return Statement(
        """
        select name, extract(epoch from holdfast.now() - heartbeat_at)::float8 from holdfast.workers
        where expires_at > holdfast.now() order by name, started_at
        """,
        {},
        each(WorkerFigure._make),
    )
