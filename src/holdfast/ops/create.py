"""Create: jobs with their first tasks, and the runs of a map, each in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import islice

from holdfast.domain.errors import HoldfastError, JobNotFound, RunNotFound
from holdfast.domain.ids import derived_id, series, slice_ids
from holdfast.domain.jobs import JobRecord, Mapped, MapRecord, NewJob, NewMap, Slice
from holdfast.domain.values import AttemptRef, KnownAs, NewRun, Submitted
from holdfast.ops.children import require_same_map, require_same_run, take_map_name, take_name
from holdfast.ops.depend import hold_awaited, link
from holdfast.ops.jobs import get_job, grow, hold_attempt
from holdfast.ops.submit import ROUNDS, make, remove_stale_key, reused
from holdfast.sql import children, jobs, keys, maps, runs
from holdfast.sql.jobs import Move
from holdfast.sql.keys import NewKey
from holdfast.sql.statement import Op

AT_ONCE = 10_000
HELD_OPEN = timedelta(seconds=10)
FIRST_TASKS = "tasks"


def create_job(new: NewJob, tasks: Sequence[NewRun]) -> Op[JobRecord]:
    """Create a job and its first tasks, all or none. A repeated request creates it once.

    A job without tasks is kept open for a while, so that tasks can be added, and then ends.
    """
    if (yield from jobs.insert(new, len(tasks))):
        if not tasks:
            yield from jobs.hold(new.id, HELD_OPEN)
        states = yield from hold_awaited(tasks)
        answers = yield from make(tasks, together=True)
        _require_all(sum(answer.created for _, answer in answers), len(tasks))
        yield from link(tasks, states)
    return (yield from get_job(new.id))


def create_keyed_job(new: NewJob, tasks: Sequence[NewRun], key: NewKey) -> Op[JobRecord]:
    """Create a job together with its idempotency key, or return the job that the same request created before.

    Raises KeyReused if the key belongs to another request.
    """
    for _ in range(ROUNDS):
        if (yield from keys.take(key)):
            return (yield from create_job(new, tasks))
        known = yield from keys.find(key.scope, key.key)
        if known is None:
            continue
        found = yield from jobs.read(known.run_id)
        there = found is not None or (not known.made_job and (yield from runs.read(known.run_id)) is not None)
        if not there and (yield from remove_stale_key(key.scope, key.key, known)):
            continue
        if (known.task, known.payload_hash) != (key.task, key.payload_hash):
            raise reused(key.key, known)
        if found is None:
            raise JobNotFound(f"job {known.run_id} was pruned, but its idempotency key is still stored; use a new key")
        return found
    raise HoldfastError(
        f"other requests stored and removed idempotency key {key.key!r} {ROUNDS} times during this call; try again"
    )


def find_tasks(job_id: str, candidates: Mapping[str, Sequence[KnownAs]]) -> Op[dict[str, str]]:
    """Return the tasks of a job by their keys; `candidates` are the possible names of each, the job's own last.

    A key refers to the nearest task: one that the caller's run added, one created with the job, one added to the job.
    """
    job = yield from get_job(job_id)
    names = [name for ways in candidates.values() for name in ways]
    there = {one.known_as: str(one.what["run"]) for one in (yield from children.find_many(names))}
    # An earlier version derived the id from the name alone.
    derived = {derived_id(*name): name for name in names if name not in there}
    there |= {derived[id_]: id_ for id_ in (yield from jobs.existing(list(derived)))}
    first: dict[str, str] = {}
    if job.first_tasks:
        ids = series(job_id, FIRST_TASKS, job.first_tasks, first=True)
        first = yield from jobs.first_keys(ids[0], ids[-1], list(candidates))
    found = {}
    for key, (*near, general) in candidates.items():
        ways = [*(there.get(name) for name in near), first.get(key), there.get(general)]
        id_ = next((id_ for id_ in ways if id_ is not None), None)
        if id_ is not None:
            found[key] = id_
    return found


def add_tasks(tasks: Sequence[NewRun], by: AttemptRef | None) -> Op[list[Submitted]]:
    """Add tasks to their jobs at once. Tasks that were added before are found by their name or id.

    Raises ChildDiffers if one of them differs from the stored one.
    """
    if by is not None:
        yield from hold_attempt(by)
    states = yield from hold_awaited(tasks)
    answers, made = [], []
    for task in tasks:
        # Counting locks the job, so a concurrent addition comes before or after, never in between.
        if task.job_id is not None:
            yield from grow(task.job_id, 1)
        new = yield from take_name(task, by)
        ((_, answer),) = yield from make([new], together=True)
        answers.append(answer)
        if answer.created:
            made.append(new)
            continue
        if new.job_id is not None:
            yield from jobs.grow(new.job_id, -1)
        yield from require_same_run(new, answer.run)
    yield from link(made, states)
    return answers


def add_map(
    new: NewMap, head: NewRun, slices: Callable[[str], Sequence[Slice]], by: AttemptRef | None, job: NewJob | None
) -> Op[Mapped]:
    """Create a map and its runs, one per slice, all or none, and its job if it has none yet.

    A map that was created before with the same name is returned; raises ChildDiffers if it differs.
    The runs are copies of `head` with the parameters of their slices. They are counted last, so that the job's row is
    locked only for a moment, however many there are.
    """
    if job is not None:
        yield from jobs.insert(job, 0)
    if by is not None:
        yield from hold_attempt(by)
    map_id, fresh = yield from take_map_name(new, head.task, by)
    new, head = replace(new, id=map_id), replace(head, map_id=map_id)
    if not fresh or not (yield from maps.insert(new, head.task)):
        stored = yield from get_map(map_id)
        if fresh:
            require_same_map(new, head.task, stored)
        return Mapped(stored, False)
    ids, made, remaining = slice_ids(new.id, new.total), 0, iter(slices(new.id))
    while batch := list(islice(remaining, AT_ONCE)):
        made += yield from maps.insert_runs(head, ids[made : made + len(batch)], batch)
    _require_all(made, new.total)
    yield from grow(new.job_id, new.total)
    if job is not None:
        yield from jobs.hold(job.id, HELD_OPEN)
    return Mapped((yield from get_map(map_id)), True)


def get_map(map_id: str) -> Op[MapRecord]:
    """Return the stored map. Raise RunNotFound."""
    found = yield from maps.read(map_id)
    if found is None:
        raise RunNotFound(f"no map has the id {map_id}")
    return found


def add_join(join: NewRun, by: AttemptRef | None) -> Op[Submitted]:
    """Add the task that runs after a map. The job is no longer kept open for it."""
    (made,) = yield from add_tasks([join], by)
    if by is not None and join.known_as is not None:
        what = {"run": made.run.id, "task": join.task}
        yield from children.record(KnownAs(by.run_id, join_name(join.known_as)), by.number, what)
    if made.created and join.job_id is not None:
        yield from jobs.stop_holding(join.job_id)
    return made


def join_name(known_as: KnownAs) -> str:
    """Return the name of a join in the run that requested it; the join itself is named within its map."""
    return f"{known_as.name} of map {known_as.origin}"


def end_held_jobs(limit: int = 100) -> Op[int]:
    """End jobs that were kept open for a join that was never added."""
    held = yield from jobs.no_longer_held(limit)
    if held:
        yield from jobs.settle({job_id: Move() for job_id in held})
    return len(held)


def _require_all(made: int, wanted: int) -> None:
    if made != wanted:
        raise HoldfastError(f"{wanted - made} of {wanted} runs have ids that already exist; try again with a new key")
