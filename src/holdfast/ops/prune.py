"""Prune: forget what is past its time. Live runs, and runs that a key still points to, are never touched."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from holdfast.sql import keys, partitions, workers
from holdfast.sql.statement import Op


class Pruned(NamedTuple):
    """How much was forgotten."""

    keys: int
    workers: int
    strays: int
    months: list[str]


def prune(retention: timedelta, limit: int = 1000) -> Op[Pruned]:
    """Forget expired keys, workers long dead, and the months of runs that are older than the retention."""
    expired = yield from keys.expire(limit)
    dead = yield from workers.forget(older_than_hours=retention / timedelta(hours=1))
    strays = yield from partitions.strays(retention, limit)
    months = yield from partitions.drop(retention)
    return Pruned(expired, dead, strays, months)


def make_partitions(ahead: timedelta = timedelta(days=62)) -> Op[int]:
    """Make the tables of the months to come."""
    return (yield from partitions.make(ahead))
