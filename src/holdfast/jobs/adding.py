"""Adding tasks to a job, under names by which later attempts find them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from holdfast import ops
from holdfast.domain.errors import BadInput, HoldfastError, Problem
from holdfast.domain.ids import derived_id, parse_id, placed_id
from holdfast.domain.values import KnownAs, NewRun, Submitted
from holdfast.jobs import specs
from holdfast.verbs.caller import Caller
from holdfast.verbs.procedures import Procedure, Ring
from holdfast.verbs.verb import verb


def add_now(caller: Caller, run: NewRun) -> Procedure[Submitted]:
    """Add a task at once, or return the existing one."""
    made: Submitted
    with caller.requesting(run.known_as) if run.known_as is not None else nullcontext():
        (made,) = yield partial(ops.add_tasks, [run], caller.attempt)
    if made.created:
        yield Ring([run.queue])
    return made


def is_added(run: NewRun) -> Procedure[bool]:
    """Whether an earlier attempt or an earlier call has already added it."""
    if run.known_as is None:
        return True
    found: dict[str, str] = yield partial(ops.find_tasks, run.job_id or "", {"": [run.known_as]})
    return bool(found)


def add_when_finished(caller: Caller, run: NewRun) -> Procedure[str]:
    """Add a task when the calling run succeeds."""
    if caller.run is None or run.job_id is None or run.known_as is None:
        raise HoldfastError("only a task that a worker is executing can defer adding tasks until it succeeds")
    place: int = yield partial(ops.next_place, run.job_id)
    name = f"{run.known_as.origin} {run.known_as.name}"
    new = replace(run, id=placed_id(run.job_id, place + len(caller.run.additions), name))
    same = next((one for one in caller.run.additions if one.known_as == run.known_as), None)
    with caller.requesting(run.known_as):
        if same is not None:
            ops.require_same(new, same)
            return same.id
    caller.run.additions.append(new)
    return new.id


def new_task(
    caller: Caller, job_id: str, entrypoint: Any, kwargs: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> Procedure[NewRun]:
    """The run to create for an added task, with its id and the ids of its dependencies."""
    caller.check_stop()
    spec = specs.parse(caller.settings, {"entrypoint": entrypoint, "kwargs": kwargs, **options})
    names = [name for name, _ in spec.awaits if parse_id(name) is None]
    inside = caller.run is not None and caller.run.job_id == job_id
    wanted = [*names, spec.key] if spec.key is not None and not inside else names
    candidates = {name: caller.child_names(job_id, name) for name in wanted}
    known: dict[str, str] = (yield partial(ops.find_tasks, job_id, candidates)) if wanted else {}
    if caller.run is not None:
        known |= {one.child_key: one.id for one in caller.run.additions if one.child_key is not None}
    name = caller.child_name(job_id, spec.key)
    known_as: KnownAs | None = name
    id_ = derived_id(*name)
    if not inside and spec.key is not None and spec.key in known:
        # It was created with the job, or added before: compare it by its id.
        id_, known_as = known[spec.key], None
    (run,) = specs.placed([spec], [id_], job_id, known)
    parent = caller.run.id if inside and caller.run is not None else None
    return replace(run, parent_id=parent, known_as=known_as)


@verb()
def add_task_to_current_job(
    caller: Caller,
    /,
    entrypoint: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    job_id: str | None = None,
    when: str = "now",
    **options: Any,
) -> Procedure[str]:
    """Add a task to the job of the calling run; returns its id.

    `when="now"` adds it immediately. `when="finish"` adds it in the transaction in which the calling run succeeds, or
    not at all. A run that is attempted again does not add it twice: it is identified by its `key`, or else by the order
    of the calls. Raises ChildDiffers if the existing task differs.
    """
    current = caller.current_job_id()
    if job_id is not None and job_id != current:
        raise BadInput(f"job {job_id} is not the current one, {current}; use add_task_to_job", [Problem("/job_id", "")])
    if when not in ("now", "finish"):
        raise BadInput(f'when must be "now" or "finish", not {when!r}', [Problem("/when", "unknown")])
    run = yield from new_task(caller, current, entrypoint, kwargs, options)
    if when == "finish" and not (yield from is_added(run)):
        return (yield from add_when_finished(caller, run))
    return (yield from add_now(caller, run)).run.id
