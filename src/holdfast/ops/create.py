"""Create: jobs with their first tasks, and the runs of a map, each in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import islice

from holdfast.domain.errors import HoldfastError, JobNotFound, KeyReused
from holdfast.domain.ids import series
from holdfast.domain.jobs import JobRecord, NewJob, NewMap, Slice
from holdfast.domain.values import AttemptRef, NewRun, Submitted
from holdfast.ops.depend import hold_awaited, link
from holdfast.ops.jobs import get_job, grow, hold_attempt
from holdfast.ops.submit import ROUNDS, is_given_up, make, submit_many
from holdfast.sql import jobs, keys, maps, runs
from holdfast.sql.jobs import Move
from holdfast.sql.keys import NewKey
from holdfast.sql.statement import Op

AT_ONCE = 10_000
HELD_FOR_A_JOIN = timedelta(seconds=10)
FIRST_TASKS = "tasks"
CHUNKS = "chunks"


def create_job(new: NewJob, tasks: Sequence[NewRun]) -> Op[JobRecord]:
    """Make a job and its first tasks, all or none. Asked twice, it is made once."""
    if (yield from jobs.insert(new, len(tasks))):
        states = yield from hold_awaited(tasks)
        answers = yield from make(tasks, together=True)
        _require_all(sum(answer.created for _, answer in answers), len(tasks))
        yield from link(tasks, states)
    return (yield from get_job(new.id))


def create_keyed_job(new: NewJob, tasks: Sequence[NewRun], key: NewKey) -> Op[JobRecord]:
    """Make a job together with its idempotency key, or find the job that the same request made before.

    Raises KeyReused if the key belongs to another request.
    """
    for _ in range(ROUNDS):
        if (yield from keys.take(key)):
            return (yield from create_job(new, tasks))
        known = yield from keys.find(key.scope, key.key)
        if known is None:
            continue
        found = yield from jobs.read(known.run_id)
        if found is None and (yield from runs.read(known.run_id)) is None:
            if (yield from is_given_up(key.scope, key.key, known)):
                continue
            raise JobNotFound(f"job {known.run_id} was pruned while its idempotency key was still known; use a new key")
        if found is None or known.payload_hash != key.payload_hash:
            raise KeyReused(key.key, known.run_id, ())
        return found
    raise HoldfastError(f"idempotency key {key.key!r} came and went {ROUNDS} times while it was asked for; ask again")


def find_tasks(job_id: str, candidates: Mapping[str, Sequence[str]]) -> Op[dict[str, str]]:
    """The tasks of a job by their keys; `candidates` are the ids that each may have, the job's own last.

    A key means the nearest task: one that the caller's run made, one made with the job, one added to it.
    """
    job = yield from get_job(job_id)
    there = yield from jobs.existing([id_ for ids in candidates.values() for id_ in ids])
    first: dict[str, str] = {}
    if job.first_tasks:
        ids = series(job_id, FIRST_TASKS, job.first_tasks, first=True)
        first = yield from jobs.first_keys(ids[0], ids[-1], list(candidates))
    found = {}
    for key, (*near, general) in candidates.items():
        ways = [*(id_ for id_ in near if id_ in there), first.get(key), general if general in there else None]
        id_ = next((id_ for id_ in ways if id_ is not None), None)
        if id_ is not None:
            found[key] = id_
    return found


def add_tasks(tasks: Sequence[NewRun], by: AttemptRef | None) -> Op[list[Submitted]]:
    """Add tasks to their jobs at once. Those that were added before are found again."""
    if by is not None:
        yield from hold_attempt(by)
    return (yield from submit_many(tasks))


def add_map(
    new: NewMap, head: NewRun, slices: Callable[[], Sequence[Slice]], by: AttemptRef | None, job: NewJob | None
) -> Op[bool]:
    """Make a map and its runs, one per slice, all or none, with a job of its own if it needs one.

    False if it had been made before.

    The runs are those of `head` with the parameters of their slices. They are counted last: the job's row is then held
    for a moment only, however many there are.
    """
    if job is not None:
        yield from jobs.insert(job, 0)
    if by is not None:
        yield from hold_attempt(by)
    if not (yield from maps.insert(new, head.task)):
        return False
    ids, made, told = series(new.id, CHUNKS, new.total), 0, iter(slices())
    while batch := list(islice(told, AT_ONCE)):
        made += yield from maps.insert_runs(head, ids[made : made + len(batch)], batch)
    _require_all(made, new.total)
    yield from grow(new.job_id, new.total)
    if job is not None:
        yield from jobs.hold(job.id, HELD_FOR_A_JOIN)
    return True


def add_join(join: NewRun, by: AttemptRef | None) -> Op[Submitted]:
    """Add the task that runs after a map; its job need no longer be kept open for it."""
    (made,) = yield from add_tasks([join], by)
    if made.created and join.job_id is not None:
        yield from jobs.let_go(join.job_id)
    return made


def end_held_jobs(limit: int = 100) -> Op[int]:
    """End jobs that were kept open for a join which never came."""
    held = yield from jobs.held_for_nothing(limit)
    if held:
        yield from jobs.settle({job_id: Move() for job_id in held})
    return len(held)


def _require_all(made: int, wanted: int) -> None:
    if made != wanted:
        raise HoldfastError(f"{wanted - made} of {wanted} runs have ids that exist already; ask again with a new key")
