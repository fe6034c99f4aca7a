"""Finish: settle attempts. Each is accepted, or rejected because its lease is gone."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import attrgetter

from holdfast.domain.jobs import Ended
from holdfast.domain.states import AttemptStatus
from holdfast.domain.values import RELEASED, Acknowledgement, Acknowledgements, Settlement
from holdfast.ops.conclude import conclude
from holdfast.ops.submit import add_to_jobs
from holdfast.sql import events, leases, runs, tallies
from holdfast.sql.statement import Op

_ref = attrgetter("ref")
_SUCCEEDED, _LOST = AttemptStatus.SUCCEEDED, str(AttemptStatus.LOST)


def finish(worker_id: str, settlements: Sequence[Settlement]) -> Op[Acknowledgements]:
    """Settle attempts of one worker. The acknowledgements are in the order of the settlements.

    This also creates the runs that a successful attempt adds, and releases or ends dependents. A claim whose attempt
    never started leaves no attempt row: its run is ready again. An attempt that is given twice is settled once, by the
    first of its settlements: counted twice, its job would end too early.
    """
    if len(set(map(_ref, settlements))) < len(settlements):
        once = {settlement.ref: settlement for settlement in reversed(settlements)}
        found = yield from finish(worker_id, list(once.values()))
        by_ref = {ack.ref: ack for ack in found}
        acks = Acknowledgements(by_ref[settlement.ref] for settlement in settlements)
        acks.released = found.released
        return acks
    quick = [s for s in settlements if s.result is not None and s.status is _SUCCEEDED and s.executor is None]
    if len(quick) == len(settlements):
        return (yield from record(settlements, (yield from leases.succeed(worker_id, quick))))
    succeeded = set(map(_ref, quick))
    other = [s for s in settlements if s.begun and s.ref not in succeeded]
    unbegun = [s for s in settlements if not s.begun and s.ref not in succeeded]
    accepted: list[Acknowledgement] = []
    ready_again: list[str] = []
    if unbegun:
        released = yield from leases.release(worker_id, unbegun)
        ready_again = [one.queue for one in released]
        accepted += [one.ack for one in released]
        # A run that was not released has a cancel request, or another worker holds it.
        back = {ack.ref for ack in accepted}
        left = [settlement for settlement in unbegun if settlement.ref not in back]
        settlements = yield from _with_tasks(settlements, left)
        other += left
    if quick:
        accepted += yield from leases.succeed(worker_id, quick)
    if other:
        accepted += yield from leases.settle(worker_id, other)
    acks = yield from record(settlements, accepted)
    acks.released = acks.released.union(ready_again)
    return acks


def _with_tasks(settlements: Sequence[Settlement], unbegun: Sequence[Settlement]) -> Op[Sequence[Settlement]]:
    """Look up the tasks of claims that the worker never received: ended attempts are counted by task."""
    tasks = {}
    for settlement in unbegun:
        if not settlement.task and (run := (yield from runs.read(settlement.ref.run_id))) is not None:
            tasks[settlement.ref] = run.task
    return [s._replace(task=tasks[s.ref]) if s.ref in tasks else s for s in settlements] if tasks else settlements


def record(settlements: Sequence[Settlement], accepted: Iterable[Acknowledgement]) -> Op[Acknowledgements]:
    """Count accepted settlements, record rejected ones, and update maps, jobs and dependents, in one transaction."""
    acks = Acknowledgements(accepted)
    if list(map(_ref, acks)) != list(map(_ref, settlements)):
        by_ref = {ack.ref: ack for ack in acks}
        acks = Acknowledgements(
            by_ref.get(s.ref) or Acknowledgement(s.ref, False, s.status, s.outcome) for s in settlements
        )
    refused = [v.ref for s, v in zip(settlements, acks, strict=True) if s.begun and not v.accepted]
    if refused:
        held = yield from events.hold_runs([ref.run_id for ref in refused])
        yield from events.fenced(refused, "the lease was gone when the attempt ended", held)
    counted = _counted(settlements, acks)
    if counted:
        ended = [v for v in acks if v.accepted and v.outcome is not None]
        awaited = yield from tallies.add(counted, [v.ref.run_id for v in ended])
        succeeded = [s for s, v in zip(settlements, acks, strict=True) if v.accepted and v.outcome == "SUCCEEDED"]
        added = [new for settlement in succeeded for new in settlement.adds]
        made = (yield from add_to_jobs(added)) if added else []
        if awaited or made or any(v.job_id is not None for v in ended):
            runs_ended = [Ended(v.ref.run_id, str(v.outcome), v.job_id, v.map_id) for v in ended]
            released = yield from conclude(runs_ended, made, awaited=awaited)
            acks.released = released.union(new.queue for new in added)
    return acks


def _counted(
    settlements: Sequence[Settlement], acks: Sequence[Acknowledgement]
) -> dict[tallies.Tally, tuple[int, float]]:
    seconds: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for settlement, ack in zip(settlements, acks, strict=True):
        task, status, lag, elapsed = settlement.task, ack.status, settlement.lag, settlement.elapsed
        if status == RELEASED or not (ack.accepted or settlement.begun):
            continue
        if not ack.accepted:
            seconds[task, "fenced"].append(0.0)
            continue
        if lag is not None:
            seconds[task, "lag"].append(lag)
        seconds[task, ack.outcome or "retried"].append(ack.elapsed if elapsed is None else elapsed)
        if status == _LOST:
            seconds[task, "lost"].append(0.0)
    counted: dict[tallies.Tally, tuple[int, float]] = {}
    for (task, kind), values in seconds.items():
        values.sort()
        start = 0
        while start < len(values):
            bucket = bisect_left(tallies.BOUNDS, values[start])
            last = bucket >= len(tallies.BOUNDS)
            end = len(values) if last else bisect_right(values, tallies.BOUNDS[bucket], start)
            counted[task, kind, bucket] = (end - start, sum(values[start:end]))
            start = end
    return counted
