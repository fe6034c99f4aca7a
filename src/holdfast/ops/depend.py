"""Depend: runs that wait for other runs, or for maps, to end."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from holdfast.domain.errors import RunNotFound
from holdfast.domain.values import NewRun
from holdfast.ops.conclude import count_jobs, recount
from holdfast.sql import dependencies
from holdfast.sql.dependencies import OPEN, PRUNED
from holdfast.sql.statement import Op

ROUNDS = 10
FIRST = "00000000-0000-0000-0000-000000000000"


def hold_awaited(many: Sequence[NewRun]) -> Op[dict[str, str | None]]:
    """How those stand that new runs will wait for; none of them can end before this transaction does.

    Those that are among the new runs themselves may not exist yet. Raises RunNotFound for any other that does not.
    """
    wanted = {dependency.on_id for new in many for dependency in new.depends_on}
    return (yield from hold(wanted, {new.id for new in many}))


def hold(
    wanted: AbstractSet[str], own: AbstractSet[str] = frozenset(), *, pruned: bool = False
) -> Op[dict[str, str | None]]:
    """How these runs and maps stand; none of them can end before this transaction does.

    Whoever counts how many of them are open has to hold them first, or an ending slips in between. Raises RunNotFound
    for those that do not exist, unless they are one's `own`. With `pruned`, those that are gone are PRUNED instead.
    """
    states: dict[str, str | None] = {}
    missing = set(wanted)
    for _ in range(ROUNDS if wanted else 0):
        states |= yield from dependencies.hold(sorted(missing))
        missing = {on_id for on_id in wanted - own if states[on_id] is None}
        if missing and pruned:
            gone = yield from dependencies.gone(sorted(missing))
            states |= dict.fromkeys(gone, PRUNED)
            missing -= gone
        if not missing:
            break
    if not missing:
        return states
    raise RunNotFound(f"cannot depend on {', '.join(sorted(missing))}: no run or map has this id")


def link(new: Sequence[NewRun], states: dict[str, str | None]) -> Op[None]:
    """Write the edges of new runs, and decide about those that depend on something that ended before."""
    edges = [(one.id, on_id, policy) for one in new for on_id, policy in one.depends_on]
    if not edges:
        return
    yield from dependencies.link(edges)
    made = {one.id for one in new}
    late = sorted({run_id for run_id, on_id, _ in edges if states[on_id] != OPEN and on_id not in made})
    if late:
        yield from count_jobs((yield from recount(late)))


def heal_dependencies(after: str = FIRST, limit: int = 1000) -> Op[tuple[int, str | None]]:
    """Find runs that wait for nothing any more, or in vain, and decide about them from the rows.

    Looks at up to `limit` blocked runs with ids greater than `after`; tells how many were wrong, and where to go on.
    """
    stalled, last = yield from dependencies.stalled(after, limit)
    if not stalled:
        return 0, last
    # Their dependencies must neither end nor be reopened between the count and its use.
    yield from dependencies.hold((yield from dependencies.targets(stalled)))
    held = yield from dependencies.hold_blocked(stalled)
    if held:
        yield from count_jobs((yield from recount(held)))
    return len(held), last
