"""Which upkeep services are due now, in a single query, so that idle workers cost little."""

from __future__ import annotations

from holdfast.sql.deliveries import DUE
from holdfast.sql.jobs import NO_LONGER_HELD
from holdfast.sql.resources import TO_REMOVE
from holdfast.sql.statement import Statement, each
from holdfast.sql.stopping import TO_STOP

_CHORES = {
    "fold": "from holdfast.tallies",
    "start_late_jobs": "from holdfast.late_starts",
    "name_tasks": "from holdfast.ready where task = ''",
    "publish": "from holdfast.outbox",
    "publish again": DUE,
    "stop_overdue_jobs": TO_STOP,
    "end_held_jobs": NO_LONGER_HELD,
    "remove_resources": TO_REMOVE,
}
NAMES = frozenset(name.partition(" ")[0] for name in _CHORES)


def due() -> Statement[list[str]]:
    """Return the names of the services that have work to do now."""
    return Statement(
        " union all ".join(
            f"select '{name.partition(' ')[0]}' where exists (select {sql})" for name, sql in _CHORES.items()
        ),
        {},
        each(lambda row: str(row[0])),
    )
