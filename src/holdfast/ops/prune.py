"""Prune: remove data past its retention. Live runs, and runs of keys that have not expired, are never removed.

Each call does a bounded amount of work; `more` says whether there is more to do now. A month of runs is dropped first,
which is fast; rows that its runs left in other tables are removed afterwards, in steps.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from holdfast.domain.errors import ConfigurationError
from holdfast.sql import keys, partitions, workers
from holdfast.sql.statement import Op, as_operation

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


results_to_remove = as_operation(partitions.results_to_remove)
results_removed = as_operation(partitions.results_removed)
results_not_removed = as_operation(partitions.results_not_removed)
make_partitions = as_operation(partitions.make)
