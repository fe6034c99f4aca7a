"""Results of pruned runs that have to be removed from the result store.

A run is recorded here in the statement that deletes it, or later, never earlier: so the result of an existing run is
never removed, and an interrupted removal is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.sql.statement import Statement, each, nothing, plain_array


def listing(limit: int) -> Statement[list[str]]:
    """Return deleted runs whose results may still be stored."""
    return Statement(
        """
        select discarded_results.run_id::text from holdfast.discarded_results
        where not exists (select from holdfast.runs where runs.id = discarded_results.run_id)
        order by tried_at nulls first, discarded_results.run_id limit %(limit)s
        """,
        {"limit": limit},
        each(lambda row: str(row[0])),
    )


def removed(run_ids: Sequence[str]) -> Statement[None]:
    """Record that the results of these runs have been removed."""
    return Statement(
        "delete from holdfast.discarded_results where run_id = any(%(run_ids)s::uuid[])",
        {"run_ids": plain_array(run_ids)},
        nothing,
    )


def put_off(run_ids: Sequence[str]) -> Statement[None]:
    """Record that the results of these runs could not be removed, so that others are tried first."""
    return Statement(
        "update holdfast.discarded_results set tried_at = holdfast.now() where run_id = any(%(run_ids)s::uuid[])",
        {"run_ids": plain_array(run_ids)},
        nothing,
    )
