"""Conclude: what follows for others when runs end. Maps and jobs count it; whoever waited for it is decided.

Every operation that ends runs calls it in its own transaction, after the runs' own rows: so the counters cannot drift,
and no dependent starts before, or is forgotten after, what it waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.domain.jobs import Ending
from holdfast.sql import dependencies, jobs, maps
from holdfast.sql.dependencies import Decision
from holdfast.sql.jobs import Move
from holdfast.sql.statement import Op


def conclude(endings: Sequence[Ending], added: Sequence[str] = (), *, awaited: bool = True) -> Op[frozenset[str]]:
    """Draw the conclusions of these endings; tells the queues in which runs became ready.

    `added` are the jobs of runs that came with them, one entry for each. `awaited=False`: the caller looked, and nobody
    waits for these runs.
    """
    everything, released = list(endings), set[str]()
    mapped = yield from _count_maps(endings)
    if awaited or mapped:
        decisions = yield from dependencies.decide([*endings, *mapped])
        ended = yield from _follow(decisions, released)
        everything += ended
    moves = yield from _moves(everything, added)
    if moves:
        yield from jobs.settle(moves)
    return frozenset(released)


def recount(run_ids: Sequence[str]) -> Op[list[Ending]]:
    """Decide from the rows about runs that wait, which this transaction must hold, and carry it out.

    Tells which ended by that; the caller has them counted, as the last thing it does: see `count_jobs`.
    """
    decisions = yield from dependencies.recount(run_ids)
    return (yield from _follow(decisions, set()))


def count_jobs(endings: Sequence[Ending]) -> Op[None]:
    """Let jobs count what ended."""
    moves = yield from _moves(endings)
    if moves:
        yield from jobs.settle(moves)


def _follow(decisions: Sequence[Decision], released: set[str]) -> Op[list[Ending]]:
    """Carry out what was decided. Edges that were added meanwhile were not seen, so look again until none is left."""
    everything: list[Ending] = []
    while decisions:
        applied = yield from dependencies.apply(decisions)
        released |= applied.released
        everything += applied.ended
        if not applied.ended:
            break
        mapped = yield from _count_maps(applied.ended)
        held = yield from dependencies.hold_dependents([ending.id for ending in [*applied.ended, *mapped]])
        decisions = (yield from dependencies.recount(held)) if held else []
    return everything


def _count_maps(endings: Iterable[Ending]) -> Op[list[Ending]]:
    counts: dict[str, tuple[int, int]] = {}
    for ending in endings:
        if ending.map_id is not None:
            ended, unsuccessful = counts.get(ending.map_id, (0, 0))
            counts[ending.map_id] = (ended + 1, unsuccessful + (ending.outcome != "SUCCEEDED"))
    return (yield from maps.settle(counts)) if counts else []


def _moves(endings: Iterable[Ending], added: Iterable[str] = ()) -> Op[dict[str, Move]]:
    """How the counters of jobs move. A critical run that failed, or was cancelled for its own sake, breaks its job."""
    moves: dict[str, Move] = {}
    blamed = []
    for ending in endings:
        if ending.job_id is None:
            continue
        move = moves.setdefault(ending.job_id, Move())
        match ending.outcome:
            case "SUCCEEDED":
                move.succeeded += 1
            case "FAILED":
                move.failed += 1
            case _:
                move.cancelled += 1
        if ending.outcome != "SUCCEEDED" and not ending.unreachable:
            blamed.append(ending.id)
    for job_id in (yield from jobs.critical(blamed)) if blamed else []:
        moves[job_id].broken += 1
    for job_id in added:
        moves.setdefault(job_id, Move()).added += 1
    return moves
