"""What the counters alone do not tell: how many runs are being executed now, by task."""

from __future__ import annotations

from holdfast.sql.statement import Statement


def running() -> Statement[dict[str, int]]:
    """Leases by task: as many rows as there are busy slots, however long the backlog is."""
    return Statement(
        """
        select runs.task, count(*) from holdfast.leases join holdfast.runs on runs.id = leases.run_id
        group by runs.task
        """,
        {},
        lambda found: {row[0]: int(row[1]) for row in found},
    )
