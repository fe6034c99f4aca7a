"""Rescue: attempts whose worker is dead become LOST, and their runs are retried or fail. Any process may do it."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.settling import after_failure, policy_of
from holdfast.domain.values import Acknowledgements
from holdfast.ops.finish import record
from holdfast.sql import leases, orphans
from holdfast.sql.orphans import Orphan
from holdfast.sql.statement import Op, as_operation

find_orphans = as_operation(orphans.listing)


def rescue(dead: Sequence[Orphan], random: float) -> Op[Acknowledgements]:
    """Settle these leases as LOST, if they still exist and their worker is still dead.

    Runs whose worker stopped before it started them return to their queue instead.
    """
    if not dead:
        return Acknowledgements()
    settlements = []
    unbegun = [orphans.not_started(orphan) for orphan in dead if not orphan.begun]
    holders = sorted({orphan.worker_id for orphan in dead})
    released = (yield from leases.release_orphans(unbegun, holders)) if unbegun else []
    back = {one.ack.ref for one in released}
    for orphan in dead:
        if (orphan.run_id, orphan.number) in back:
            continue
        outcome, delay = after_failure(
            policy_of(orphan.policy), spent=orphan.number - orphan.excused, crashes=orphan.crashes, random=random
        )
        settlements.append(orphans.lost(orphan, outcome, delay))
    accepted = (yield from leases.settle_orphans(settlements, holders)) if settlements else []
    refs = {ack.ref for ack in accepted}
    # Leases that were not settled have been finished, renewed or rescued in the meantime; there is nothing to record.
    acks = yield from record([s for s in settlements if s.ref in refs], accepted)
    acks += [one.ack for one in released]
    return acks
