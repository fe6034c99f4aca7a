"""Prune: remove data past its retention. Live runs, and runs of keys that have not expired, are never removed.

Each call does a bounded amount of work; `more` says whether there is more to do now. A month of runs is dropped first,
which is fast; rows that its runs left in other tables are removed afterwards, in steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from holdfast.domain.errors import ConfigurationError
from holdfast.sql import discarded, keys, partitions, workers
from holdfast.sql.statement import Op

STEPS = 10


class Pruned(NamedTuple):
    """What was removed, and whether there is more to remove."""

    keys: int
    workers: int
    strays: int
    months: list[str]
    more: bool = False


def prune(retention: timedelta, limit: int = 1000) -> Op[Pruned]:
    """Remove dead workers, the oldest month of runs that is past its retention, and the keys of those runs."""
    isolation = yield from partitions.isolation()
    if isolation != "read committed":
        raise ConfigurationError(
            f"pruning needs the isolation level READ COMMITTED to see runs that were just reopened, not {isolation}"
        )
    dead = yield from workers.forget(older_than_hours=retention / timedelta(hours=1))
    strays = yield from partitions.strays(retention, limit)
    months = yield from partitions.drop(retention)
    expired = yield from keys.expire(limit)
    more = expired == limit
    # Pruned ranges are kept until they are swept: remove the keys that refer to them first.
    for _ in range(0 if more else STEPS):
        more = yield from partitions.sweep(limit)
        if not more:
            break
    return Pruned(expired, dead, strays, months, more or bool(months) or strays == limit)


def results_to_remove(limit: int = 100) -> Op[list[str]]:
    """Return pruned runs whose results are still in the result store, those not tried yet first."""
    return (yield from discarded.listing(limit))


def results_removed(run_ids: Sequence[str]) -> Op[None]:
    """Record that the results of these runs have been removed."""
    yield from discarded.removed(run_ids)


def results_not_removed(run_ids: Sequence[str]) -> Op[None]:
    """Record that the results of these runs could not be removed; they come last next time."""
    yield from discarded.put_off(run_ids)


def make_partitions(ahead: timedelta = timedelta(days=62)) -> Op[int]:
    """Create the tables of the coming months."""
    return (yield from partitions.make(ahead))
