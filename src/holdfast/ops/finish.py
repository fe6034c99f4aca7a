"""Finish: settle attempts. Each is accepted, or refused because its lease is gone."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from holdfast.domain.jobs import Ending
from holdfast.domain.states import AttemptStatus
from holdfast.domain.values import RELEASED, Settlement, Verdict, Verdicts
from holdfast.ops.conclude import conclude
from holdfast.ops.submit import add_to_jobs
from holdfast.sql import events, leases, runs, tallies
from holdfast.sql.statement import Op


def finish(worker_id: str, settlements: Sequence[Settlement]) -> Op[Verdicts]:
    """Settle attempts of one worker; the verdicts come in the order asked.

    Runs that a task left to be added with its own success are made here, and those that waited for an ending are
    decided. A claim that was never begun leaves no attempt: its run is ready again.
    """
    quick: list[Settlement] = []
    other: list[Settlement] = []
    unbegun: list[Settlement] = []
    for settlement in settlements:
        (quick if _is_quick(settlement) else other if settlement.begun else unbegun).append(settlement)
    accepted: list[Verdict] = []
    ready_again: list[str] = []
    if unbegun:
        released = yield from leases.release(worker_id, unbegun)
        ready_again = [one.queue for one in released]
        accepted += [one.verdict for one in released]
        # A run that was not released was asked to stop, or another worker holds it.
        back = {verdict.ref for verdict in accepted}
        left = [settlement for settlement in unbegun if settlement.ref not in back]
        settlements = yield from _with_tasks(settlements, left)
        other += left
    if quick:
        accepted += yield from leases.succeed(worker_id, quick)
    if other:
        accepted += yield from leases.settle(worker_id, other)
    verdicts = yield from record(settlements, accepted)
    verdicts.released = verdicts.released.union(ready_again)
    return verdicts


def _with_tasks(settlements: Sequence[Settlement], unbegun: Sequence[Settlement]) -> Op[Sequence[Settlement]]:
    """Look up the tasks of claims that the worker never received: ended attempts are counted by task."""
    tasks = {}
    for settlement in unbegun:
        if not settlement.task and (run := (yield from runs.read(settlement.ref.run_id))) is not None:
            tasks[settlement.ref] = run.task
    return [s._replace(task=tasks[s.ref]) if s.ref in tasks else s for s in settlements] if tasks else settlements


def _is_quick(settlement: Settlement) -> bool:
    return (
        settlement.result is not None and settlement.status is AttemptStatus.SUCCEEDED and settlement.executor is None
    )


def record(settlements: Sequence[Settlement], accepted: Iterable[Verdict]) -> Op[Verdicts]:
    """Count what was accepted, note what was refused, and draw the conclusions, in the same transaction."""
    by_ref = {verdict.ref: verdict for verdict in accepted}
    verdicts = Verdicts(by_ref.get(s.ref) or Verdict(s.ref, False, s.status, s.outcome) for s in settlements)
    refused = [v.ref for s, v in zip(settlements, verdicts, strict=True) if s.begun and not v.accepted]
    if refused:
        held = yield from events.hold_runs([ref.run_id for ref in refused])
        yield from events.fenced(refused, "the lease was gone when the attempt ended", held)
    counted = _counted(settlements, verdicts)
    if counted:
        ended = [v for v in verdicts if v.accepted and v.outcome is not None]
        awaited = yield from tallies.add(counted, [v.ref.run_id for v in ended])
        added = [new for s, v in zip(settlements, verdicts, strict=True) if _adds(s, v) for new in s.adds]
        made = (yield from add_to_jobs(added)) if added else []
        if awaited or made or any(v.job_id is not None for v in ended):
            endings = [Ending(v.ref.run_id, str(v.outcome), v.job_id, v.map_id) for v in ended]
            released = yield from conclude(endings, made, awaited=awaited)
            verdicts.released = released.union(new.queue for new in added)
    return verdicts


def _adds(settlement: Settlement, verdict: Verdict) -> bool:
    return bool(settlement.adds) and verdict.accepted and verdict.outcome == "SUCCEEDED"


def _counted(settlements: Sequence[Settlement], verdicts: Sequence[Verdict]) -> dict[tallies.Tally, tuple[int, float]]:
    seconds: dict[tuple[str, str], list[float]] = {}
    for settlement, verdict in zip(settlements, verdicts, strict=True):
        task = settlement.task
        if verdict.status == RELEASED or not (settlement.begun or verdict.accepted):
            continue
        if not verdict.accepted:
            seconds.setdefault((task, "fenced"), []).append(0.0)
            continue
        if settlement.lag is not None:
            seconds.setdefault((task, "lag"), []).append(settlement.lag)
        elapsed = settlement.elapsed if settlement.elapsed is not None else verdict.elapsed
        seconds.setdefault((task, verdict.outcome or "retried"), []).append(elapsed)
        if verdict.status == AttemptStatus.LOST:
            seconds.setdefault((task, "lost"), []).append(0.0)
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
