"""Conclude: update maps, jobs and dependents after runs have ended.

Every operation that ends runs calls this in its own transaction, after it has changed the runs' own rows. So counters
never drift, no dependent starts too early, and none is left waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.domain.jobs import Ended
from holdfast.sql import dependencies, jobs, maps
from holdfast.sql.dependencies import Decision
from holdfast.sql.jobs import Move
from holdfast.sql.statement import Op


def conclude(ended: Sequence[Ended], added: Sequence[str] = (), *, awaited: bool = True) -> Op[frozenset[str]]:
    """Update maps, dependents and jobs of ended runs. Return the queues in which runs became ready.

    `added` has the jobs of runs created at the same time, one entry for each. `awaited=False` means that the caller has
    checked that no run depends on these.
    """
    everything, released = list(ended), set[str]()
    mapped = yield from _count_maps(ended)
    if awaited or mapped:
        decisions = yield from dependencies.decide([*ended, *mapped])
        everything += yield from _follow(decisions, released)
    yield from count_jobs(everything, added)
    return frozenset(released)


def recount(run_ids: Sequence[str]) -> Op[list[Ended]]:
    """Decide about waiting runs from the rows, and apply the decisions. This transaction must have locked them.

    Return the runs that ended. The caller passes them to `count_jobs` as its last step.
    """
    decisions = yield from dependencies.recount(run_ids)
    return (yield from _follow(decisions, set()))


def count_jobs(ended: Sequence[Ended], added: Sequence[str] = ()) -> Op[None]:
    """Count ended and added runs in their jobs."""
    moves = yield from _moves(ended, added)
    if moves:
        yield from jobs.settle(moves)


def _follow(decisions: Sequence[Decision], released: set[str]) -> Op[list[Ended]]:
    """Apply decisions. Edges added concurrently were not seen, so dependents are recounted until nothing changes."""
    everything: list[Ended] = []
    while decisions:
        applied = yield from dependencies.apply(decisions)
        released |= applied.released
        everything += applied.ended
        if not applied.ended:
            break
        mapped = yield from _count_maps(applied.ended)
        held = yield from dependencies.hold_dependents([one.id for one in [*applied.ended, *mapped]])
        decisions = (yield from dependencies.recount(held)) if held else []
    return everything


def _count_maps(ended: Iterable[Ended]) -> Op[list[Ended]]:
    counts: dict[str, tuple[int, int]] = {}
    for run in ended:
        if run.map_id is not None:
            amount, unsuccessful = counts.get(run.map_id, (0, 0))
            counts[run.map_id] = (amount + 1, unsuccessful + (run.outcome != "SUCCEEDED"))
    return (yield from maps.settle(counts)) if counts else []


def _moves(ended: Iterable[Ended], added: Iterable[str]) -> Op[dict[str, Move]]:
    """Return the changes to the counters of jobs. A critical run that fails or is cancelled breaks its job, unless it
    was cancelled as unreachable."""
    moves: dict[str, Move] = {}
    blamed = []
    for run in ended:
        if run.job_id is None:
            continue
        move = moves.setdefault(run.job_id, Move())
        match run.outcome:
            case "SUCCEEDED":
                move.succeeded += 1
            case "FAILED":
                move.failed += 1
            case _:
                move.cancelled += 1
        if run.outcome != "SUCCEEDED" and not run.unreachable:
            blamed.append(run.id)
    for job_id in (yield from jobs.critical(blamed)) if blamed else []:
        moves[job_id].broken += 1
    for job_id in added:
        moves.setdefault(job_id, Move()).added += 1
    return moves
