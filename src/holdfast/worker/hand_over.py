"""Hand-over: a worker that has nothing to do waits for a run, and a submit sends it one in a notification.

The worker lists itself in the round trip that ends its last run, or a little later if it has free slots while others
run. It leaves the list when it has claimed a run by itself. A run that it is given arrives as a notification. If the
notification is lost, the worker notices at its next poll that it is no longer listed, and reads the runs leased to it.
"""

from __future__ import annotations

from math import inf
from time import monotonic

import orjson

from holdfast.domain.doorbell import Address
from holdfast.domain.values import Claim
from holdfast.observe import emit
from holdfast.sql.waiting_workers import Given
from holdfast.worker.options import WorkerOptions
from holdfast.worker.results import AttemptResults
from holdfast.worker.round_trips import Answer, ExchangeRequest

HASH = Claim._fields.index("payload_hash")
# What the fields of a claim are, in its order.
TYPES = (str, int, int, str, str, str, bytes, str | None, int, float | int, str | None, str | None, int, str)

# After this long without another reason for a round trip, a worker with free slots makes one to list itself.
QUIET = 0.02
# How long a worker does not list itself again after it found work instead, or no room in the list.
PAUSE = 30.0
# How long a notification may take before the worker looks for the run that it was given.
LOST_AFTER = 0.1


class HandOver:
    """`listed` is where this worker can be notified, while it may be in the list of waiting workers."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._serves = options.queues != () and not options.until_empty
        self.restart()

    def restart(self) -> None:
        """Start over, with a new session."""
        self.listed: Address | None = None
        self._list_at = 0.0
        self._look_at = inf

    def worked(self) -> None:
        """Note that this worker had something to do."""
        self._list_at = monotonic() + QUIET

    def due_at(self, *, free: bool) -> float:
        """Return when a round trip is due; `free` if the worker has a free slot and knows of no run for it."""
        return min(self._look_at, self._list_at if free and self._may_list() else inf)

    def _may_list(self) -> bool:
        """Whether the worker may list itself. It must look for given runs first: once listed, it seems to have none."""
        looked = self._look_at == inf
        return looked and self.listed is None and self._serves and self._options.listener.address is not None

    def plan(self, request: ExchangeRequest, now: float, *, free: bool, held: int, overlaps: bool) -> None:
        """Add what is due to a request. `held` is the number of runs that the worker holds, `free` as in `due_at`.

        The worker does not look for given runs while another round trip, which may claim runs, is under way.
        """
        address = self._options.listener.address
        if request.positions:
            request.leave = self.listed is not None
            return
        if not overlaps and (now >= self._look_at or (request.look and self.listed is not None)):
            request.given = True
            self._look_at = inf
        moved = self.listed is not None and self.listed != address and not overlaps
        idle = held <= len(request.settlements)
        due = self._may_list() and now + (QUIET if idle else 0.0) >= self._list_at
        if address is not None and (moved or due) and free:
            request.wait = self.listed = address
            request.queues = self._options.queues

    def learn(self, request: ExchangeRequest, answer: Answer, now: float) -> bool:
        """Note the response to a request. Return whether there are runs to claim."""
        if answer.left is not None:
            self.listed = None
            if not answer.left:
                self._look_at = now + LOST_AFTER
        if answer.given is not None and not answer.given.waits and answer.listed is None:
            self.listed = None
        if answer.listed is not None and not answer.listed.waits:
            self.listed = None
            self._list_at = now + PAUSE
            if not answer.listed.found:
                self._look_at = now + LOST_AFTER
            return answer.listed.found
        return False

    def find(self, given: Given, results: AttemptResults) -> list[Claim]:
        """Return the runs that this worker was given and does not know yet. Notifications about them are ignored."""
        known = {claim.ref for claim in results.session.held.values()}
        known.update(settlement.ref for settlement in results.pending.unsettled())
        found = [claim for claim in given.claims if claim.ref not in known]
        results.late.extend(claim.ref for claim in found)
        return found

    def receive(self, payload: str, results: AttemptResults) -> list[Claim]:
        """Return the run that a notification gives to this worker, unless it has found or returned it already."""
        session = results.session
        if not payload.startswith(session.id):
            return []  # it was for the session before this one
        claim = payload.removeprefix(session.id)
        given = _read(claim) if claim else None
        if given is not None and ((given.run_id, given.number) in results.late or given.run_id in session.held):
            # The worker may be waiting for another run by now, or have been given one, so it has to look.
            self._look_at = 0.0
            return []
        self.listed = None
        if given is None:
            # It was too long, or another program sent it: the leases in the database show what this worker was given.
            if claim:
                emit("hand_over.unreadable", worker_id=session.id, length=len(payload))
            self.worked()
            self._look_at = 0.0
            return []
        return [given]


def _read(text: str) -> Claim | None:
    """Return the claim in a notification; None if it is malformed."""
    try:
        row = orjson.loads(text)
        row[HASH] = bytes.fromhex(row[HASH])
        claim = Claim._make(row)
    except (ValueError, TypeError, LookupError):
        return None
    return claim if all(map(isinstance, claim, TYPES)) else None
