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
    """Lock the runs and maps that new runs depend on, so that none of them ends first. Return their states.

    Dependencies among the new runs themselves need not exist yet. Raises RunNotFound for any other that does not.
    """
    wanted = {dependency.on_id for new in many for dependency in new.depends_on}
    return (yield from hold(wanted, {new.id for new in many}))


def hold(
    wanted: AbstractSet[str], own: AbstractSet[str] = frozenset(), *, pruned: bool = False
) -> Op[dict[str, str | None]]:
    """Lock these runs and maps, so that none of them ends before this transaction does. Return their states.

    Do this before counting how many are open: otherwise one could end in between. Raises RunNotFound for those that do
    not exist, unless they are in `own`. With `pruned`, the state of those is PRUNED instead.
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
    """Insert the edges of new runs, and decide about those whose dependencies have already ended."""
    edges = [(one.id, on_id, policy) for one in new for on_id, policy in one.depends_on]
    if not edges:
        return
    yield from dependencies.link(edges)
    made = {one.id for one in new}
    late = sorted({run_id for run_id, on_id, _ in edges if states[on_id] != OPEN and on_id not in made})
    if late:
        yield from count_jobs((yield from recount(late)))


def heal_dependencies(after: str = FIRST, limit: int = 1000) -> Op[tuple[int, str | None]]:
    """Find waiting runs whose count of blockers is wrong, and decide about them from the rows.

    Checks up to `limit` blocked runs with ids above `after`. Returns how many were wrong, and the last id checked.
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
