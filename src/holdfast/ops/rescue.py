"""Rescue: attempts whose worker is gone become LOST, and their runs go back or fail. Any process may do it."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.settling import after_failure, policy_of
from holdfast.domain.values import Acknowledgements
from holdfast.ops.finish import record
from holdfast.sql import leases
from holdfast.sql.leases import Orphan
from holdfast.sql.statement import Op


def find_orphans(limit: int) -> Op[list[Orphan]]:
    """Leases that have passed. What is found is only a hint: `rescue` asks again as it writes."""
    return (yield from leases.orphans(limit))


def rescue(orphans: Sequence[Orphan], random: float) -> Op[Acknowledgements]:
    """Settle these leases as LOST, if they are still the same and their worker is still gone.

    Runs that their worker left behind without beginning them go back to their queue instead.
    """
    if not orphans:
        return Acknowledgements()
    settlements = []
    unbegun = [leases.never_begun(orphan) for orphan in orphans if not orphan.begun]
    holders = sorted({orphan.worker_id for orphan in orphans})
    released = (yield from leases.release_orphans(unbegun, holders)) if unbegun else []
    back = {one.ack.ref for one in released}
    for orphan in orphans:
        if (orphan.run_id, orphan.number) in back:
            continue
        outcome, delay = after_failure(
            policy_of(orphan.policy),
            spent=orphan.number - orphan.excused,
            crashes=orphan.crashes,
            random=random,
        )
        settlements.append(leases.lost(orphan, outcome, delay))
    accepted = (yield from leases.settle_orphans(settlements, holders)) if settlements else []
    refs = {ack.ref for ack in accepted}
    # What was not accepted was finished, renewed or rescued by somebody else in between: nothing of ours was refused.
    acks = yield from record([s for s in settlements if s.ref in refs], accepted)
    acks += [one.ack for one in released]
    return acks
