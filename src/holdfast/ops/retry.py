"""Retry: reopen runs that FAILED or were CANCELLED, on request. Nothing else leaves a final state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from holdfast.domain.errors import JobEnded, RunEnded
from holdfast.domain.jobs import JobRecord
from holdfast.domain.states import REOPENABLE, Status
from holdfast.domain.values import RunRecord
from holdfast.ops.conclude import count_jobs, recount
from holdfast.ops.depend import hold
from holdfast.ops.history import get
from holdfast.ops.jobs import get_job
from holdfast.sql import attempts, dependencies, jobs, maps
from holdfast.sql.attempts import Reopened
from holdfast.sql.dependencies import PRUNED, DependencyEdge
from holdfast.sql.jobs import Move
from holdfast.sql.statement import Op


def retry(run_id: str, by: str) -> Op[RunRecord]:
    """Reopen the run: PENDING, due now, with the full number of attempts; attempt numbers continue.

    Runs that could not start because of it are reopened as well, and so is its job.
    """
    undecidable: set[str] = set()
    reopened = yield from _reopen([run_id], by, undecidable)
    run = yield from get(run_id)
    if run_id in undecidable:
        raise RunEnded(
            f"run {run_id} never started, and a run that it depends on has been pruned, so Holdfast cannot know "
            "whether it may start. Submit a new run instead."
        )
    if not reopened and run.status in REOPENABLE:
        if run.job_id is not None:
            _refuse_while_stopping((yield from get_job(run.job_id)))
        raise RunEnded(f"the job of run {run_id} succeeded without it; submit a new run to compute it again")
    if not reopened:
        raise RunEnded(
            f"run {run_id} is {run.status}; only a FAILED or CANCELLED run can be retried. "
            "Submit a new run to compute it again."
        )
    if run.status is Status.CANCELLED:
        raise RunEnded(f"run {run_id} cannot start ({run.reason}); retry what it depends on first")
    return run


def retry_failed_tasks(job_id: str, by: str) -> Op[int]:
    """Reopen a job, its runs that failed or were cancelled, and those that could not start because of them.

    Runs that succeeded are not repeated. Return how many runs were reopened.
    """
    job = yield from get_job(job_id)
    if job.status is Status.SUCCEEDED:
        raise JobEnded(f"job {job_id} ({job.name}) succeeded; there is nothing to retry")
    _refuse_while_stopping(job)
    return len((yield from _reopen((yield from jobs.to_retry(job_id)), by)))


def _refuse_while_stopping(job: JobRecord) -> None:
    if job.cancel_requested_at is not None and job.finished_at is None:
        raise JobEnded(f"job {job.id} ({job.name}) is being stopped; retry what was cancelled once it has ended")


def _reopen(run_ids: Sequence[str], by: str, undecidable: set[str] | None = None) -> Op[list[Reopened]]:
    """Reopen runs and those that could not start because of them, and update maps, dependents and jobs.

    Runs for which it cannot be known whether they may start are left unchanged and added to `undecidable`.
    """
    undecidable = set() if undecidable is None else undecidable
    back: list[Reopened] = []
    opened: set[str] = set()
    seen, fresh = set(run_ids), list(run_ids)
    while fresh:
        part = yield from _reopen_these(fresh, by, undecidable)
        back += part
        mapped = Counter(run.map_id for run in part if run.map_id is not None)
        if mapped:
            opened.update((yield from maps.unsettle(mapped)))
        # Another transaction may just have ended more of them as unreachable, so repeat until there are none.
        edges = yield from dependencies.edges_of_unreachable([*(run.run_id for run in part), *mapped])
        fresh = [
            run_id for run_id in _reachable(edges, {run.run_id for run in back} | set(mapped)) if run_id not in seen
        ]
        seen.update(fresh)
    if back:
        dependents = yield from dependencies.hold_dependents([*(run.run_id for run in back), *opened])
        uncounted = sorted({run.run_id for run in back if run.waits}.union(dependents))
        ended = (yield from recount(uncounted)) if uncounted else []
        if any(run.job_id is not None for run in back):
            yield from _reopen_jobs(back)
        yield from count_jobs(ended)
    return back


def _reopen_these(run_ids: Sequence[str], by: str, undecidable: set[str]) -> Op[list[Reopened]]:
    held = yield from attempts.hold_ended(run_ids)
    if not held:
        return []
    # Their dependencies must not end while they are counted. Those about to be reopened have ended and are locked.
    awaited = yield from dependencies.targets(held)
    states = yield from hold(set(awaited) - set(held), pruned=True)
    gone = sorted(on_id for on_id, state in states.items() if state == PRUNED)
    if gone:
        undecidable |= yield from dependencies.undecidable(held, gone)
        held = [run_id for run_id in held if run_id not in undecidable]
    return (yield from attempts.reopen(held, by)) if held else []


def _reachable(edges: Sequence[DependencyEdge], opened: AbstractSet[str]) -> list[str]:
    """Return the runs that can start again now that `opened` are open, because nothing else prevents it."""
    possible = {edge.run_id for edge in edges}
    while True:
        open_again = opened | possible
        hindered = {
            edge.run_id
            for edge in edges
            if edge.run_id in possible and edge.on_id not in open_again and not _may_be_met(edge)
        }
        if not hindered:
            return sorted(possible)
        possible -= hindered


def _may_be_met(edge: DependencyEdge) -> bool:
    wanted = {"success": "SUCCEEDED", "failure": "FAILED"}.get(edge.policy)
    return wanted is None or edge.ending in (None, wanted)


def _reopen_jobs(back: Sequence[Reopened]) -> Op[None]:
    moves: dict[str, Move] = {}
    for run in back:
        if run.job_id is not None:
            move = moves.setdefault(run.job_id, Move())
            if run.outcome == "FAILED":
                move.failed += 1
            else:
                move.cancelled += 1
            move.broken += run.blamed
    if (yield from jobs.reopen(moves)) < len(moves):
        for job_id in moves:
            _refuse_while_stopping((yield from get_job(job_id)))
        raise JobEnded("the job of this run succeeded without it; submit a new run to compute it again")
