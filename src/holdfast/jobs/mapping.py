"""map and collect: one task per slice of a dataset, and one that runs once after all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any

import orjson

from holdfast import ops
from holdfast.domain.canonical import canonicalize
from holdfast.domain.context import RunContext
from holdfast.domain.errors import BadInput, Problem, refused
from holdfast.domain.ids import SERIES_AT_MOST, derived_id, new_id
from holdfast.domain.jobs import Mapped, MapRecord, NewJob, NewMap, Slice
from holdfast.domain.tasks import registry
from holdfast.domain.values import Dependency, KnownAs, NewRun, RunRecord
from holdfast.jobs import specs
from holdfast.jobs.datasets import Dataset, Part, dataset_of
from holdfast.jobs.datasets.parts import Items
from holdfast.jobs.handles import MapHandle
from holdfast.jobs.specs import new_job
from holdfast.jobs.views import View
from holdfast.ops.create import join_name
from holdfast.verbs.caller import Caller
from holdfast.verbs.procedures import Elsewhere, Procedure, Ring
from holdfast.verbs.subjects import job_id as job_id_of
from holdfast.verbs.verb import verb

CHUNK_SIZE = 10_000
BRIEF = 2_000

# A placeholder for each slice's view. It is random in every process, so it cannot occur in user data.
_HOLE = f"view {new_id()}"


@verb()
def map_dataset(
    caller: Caller,
    task: Any,
    dataset: Any,
    /,
    chunk_size: int = CHUNK_SIZE,
    *,
    options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Procedure[MapHandle]:
    """Create one run of `task` for every `chunk_size` rows of a dataset, without reading them, in one transaction.

    Each run is called with its slice as `view=`, and the kwargs. Inside a task of a job, the runs are added to that
    job; otherwise a job is created. `options` are those of a task in `create_job`, and `job_id` for an existing job;
    its `kwargs` may use names of `map`'s own arguments. Returns a handle for `collect` and `depends_on`. A later
    attempt gets the map that an earlier one created; raises ChildDiffers if it requests another.
    """
    caller.check_stop()
    known = registry.resolve(task)
    _require_size(chunk_size)
    given = dict(options or {})
    job_id, key = given.pop("job_id", None), given.pop("key", None)
    kwargs = known.encode(_kwargs(kwargs, given.pop("kwargs", None), "view", "map"))
    requested = dataset_of(dataset)
    source = yield Elsewhere(partial(_source, requested))
    pinned: Dataset = yield Elsewhere(requested.pinned)
    parts: list[Part] = yield Elsewhere(partial(pinned.parts, chunk_size))
    if len(parts) > SERIES_AT_MOST:
        raise BadInput(f"{len(parts)} slices are too many; choose a larger chunk_size", [Problem("/chunk_size", "")])
    sample = {**kwargs, "view": {"$view": {}}}
    head = specs.parse(caller.settings, {"entrypoint": task, "kwargs": sample, **given})
    if head.awaits:
        raise BadInput(
            "the runs of a map cannot have dependencies; call map in a task that has them", [Problem("/options", "")]
        )
    job, known_as, job_id = _job_and_name(caller, task, job_id, key)
    parent = caller.run.id if caller.run is not None and caller.run.job_id == job_id else None
    run = replace(head.run, job_id=job_id, parent_id=parent)
    new = NewMap(
        derived_id(*known_as),
        job_id,
        parent,
        orjson.dumps(pinned.description()).decode(),
        len(parts),
        known_as,
        {"task": run.task, "dataset": source, "chunk_size": chunk_size, "kwargs": brief(kwargs)},
    )
    slices = partial(_slices, caller, task, kwargs, pinned, parts)
    with caller.requesting(known_as):
        mapped: Mapped = yield partial(ops.add_map, new, run, slices, caller.attempt, job)
    if mapped.created:
        yield Ring([run.queue])
    elif caller.run is not None:
        _log_changes(caller.run, mapped.map, new)
    return MapHandle(mapped.map.id, job_id, mapped.map.total, run.task)


def brief(value: Any) -> Any:
    """Return a JSON value for comparisons: the value itself, or the hash of its canonical text if that is long."""
    text, digest = canonicalize(value)
    return value if len(text) <= BRIEF else {"sha256": digest, "bytes": len(text)}


def _source(dataset: Any) -> dict[str, Any]:
    """Return a description that identifies a dataset, without its current size."""
    match dataset:
        case View():
            part = dataset.part
            return {"view": [part.offset, part.limit, part.place], "of": _source(dataset.dataset)}
        case Items():
            return {"kind": "items", "rows": len(dataset.values), "items": brief(dataset.values)}
        case _:
            described: dict[str, Any] = orjson.loads(orjson.dumps(dataset.description()))
            return described


def _log_changes(run: RunContext, stored: MapRecord, new: NewMap) -> None:
    """Log in the run that its dataset has changed since it was first mapped, and that the stored map is used."""
    before, now = {"slices": stored.total, "dataset": stored.dataset}, {"slices": new.total}
    changes = ops.diff(before, now | {"dataset": orjson.loads(new.dataset)})
    if changes:
        run.log(
            f"the dataset has changed since an earlier attempt mapped over it; map {stored.id} still has the slices "
            f"of that attempt: {'; '.join(changes)}",
            "warning",
        )


def _kwargs(given: Mapping[str, Any], more: Any, own: str, call: str) -> dict[str, Any]:
    """Return a task's arguments: the kwargs of the call, and those of `options["kwargs"]`, which may have any name."""
    if more is not None and not isinstance(more, Mapping):
        raise refused(Problem("/options/kwargs", "must be a mapping"))
    twice = sorted(set(given) & set(more or {}))
    if twice:
        raise BadInput(
            f"{twice[0]} is given twice: as a keyword argument and in options",
            [Problem(f"/kwargs/{twice[0]}", "twice")],
        )
    kwargs = {**given, **(more or {})}
    if own in kwargs:
        raise refused(Problem(f"/kwargs/{own}", f"is set by {call}"))
    return kwargs


def _require_size(chunk_size: Any) -> None:
    if isinstance(chunk_size, bool) or not isinstance(chunk_size, int) or chunk_size < 1:
        raise BadInput(
            f"chunk_size must be a positive number of rows, not {chunk_size!r}",
            [Problem("/chunk_size", "not positive")],
        )


def _job_and_name(caller: Caller, task: Any, job_id: Any, key: str | None) -> tuple[NewJob | None, KnownAs, str]:
    """Return the job to create for a map, if any, the name of the map, and the id of its job."""
    if job_id is not None:
        job_id = job_id_of(job_id)
        return None, caller.child_name(job_id, key, "map "), job_id
    name = f"map {registry.resolve(task).name}"[:255]
    if caller.run is None:
        job = new_job(caller, name, None, None)
        return job, caller.child_name(job.id, key, "map "), job.id
    known_as = KnownAs(caller.run.id, f"map {caller.run.child_name(key)}")
    if caller.run.job_id is not None:
        return None, known_as, caller.run.job_id
    job = new_job(caller, name, None, None, derived_id(derived_id(*known_as), "job"))
    return job, known_as, job.id


def _slices(
    caller: Caller, task: Any, kwargs: Mapping[str, Any], dataset: Dataset, parts: Sequence[Part], map_id: str
) -> list[Slice]:
    """Return the parameters of each run. The canonical text is rendered once, and each slice's view is inserted."""
    ignored = registry.resolve(task).ignore_in_hash
    before, _, after = canonicalize({**kwargs, "view": _HOLE})[0].partition(f'"{_HOLE}"')
    most = caller.settings.max_body_bytes
    found = []
    for part in parts:
        text = f'{before}{{"$view":{_view(dataset, part, map_id)}}}{after}'
        if len(text) > most:
            raise BadInput(
                f"a slice takes {len(text)} bytes, more than {most}; choose a smaller chunk_size, or keep the rows "
                "in one of holdfast.jobs.datasets",
                [Problem("/chunk_size", "too large")],
            )
        encoded = text.encode()
        digest = canonicalize(orjson.loads(encoded), ignored)[1] if ignored else sha256(encoded).hexdigest()
        found.append(Slice(text, digest))
    return found


def _view(dataset: Dataset, part: Part, map_id: str) -> str:
    """Return the canonical text of a slice's view."""
    inline = dataset.inline(part)
    if inline is None:
        place = canonicalize(part.place)[0]
        return f'{{"limit":{part.limit},"map":"{map_id}","offset":{part.offset},"place":{place}}}'
    if "range" in inline:
        start, stop, step = inline["range"]
        return f'{{"offset":{part.offset},"range":[{start},{stop},{step}]}}'
    return canonicalize(inline)[0]


@verb()
def collect(
    caller: Caller, handle: Any, /, *, into: Any, options: Mapping[str, Any] | None = None, **kwargs: Any
) -> Procedure[RunRecord]:
    """Add the task that runs once after all runs of a map, called with `results=` and the kwargs. Return it.

    The results are in the order of the slices, and are loaded as they are read. A repeated call with the same task adds
    it once; raises ChildDiffers if the kwargs differ. The task does not run if a slice failed, until that is retried.
    """
    caller.check_stop()
    given = dict(options or {})
    key = given.pop("key", None)
    kwargs = _kwargs(kwargs, given.pop("kwargs", None), "results", "collect")
    passed = MapHandle.of(handle)
    stored: MapRecord = yield partial(ops.get_map, passed.id)
    if (stored.total, stored.job_id) != (passed.total, passed.job_id):
        raise BadInput(
            f"map {stored.id} of job {stored.job_id} has {stored.total} slices; the handle refers to {passed.total} "
            f"slices of job {passed.job_id}. Use the handle that map returned.",
            [Problem("/handle", "not the map that is stored")],
        )
    reference = {"$results": {"map": stored.id, "total": stored.total}}
    spec = specs.parse(caller.settings, {"entrypoint": into, "kwargs": {**kwargs, "results": reference}, **given})
    known: dict[str, str] = {}
    names = [name for name, _ in spec.awaits]
    if names:
        candidates = {name: caller.child_names(stored.job_id, name) for name in names}
        known = yield partial(ops.find_tasks, stored.job_id, candidates)
    known_as = KnownAs(stored.id, f"collect {key if key is not None else spec.run.task}")
    (run,) = specs.placed([spec], [derived_id(*known_as)], stored.job_id, known)
    parent = caller.run.id if caller.run is not None and caller.run.job_id == stored.job_id else None
    awaited = (Dependency(stored.id), *run.depends_on)
    join: NewRun = replace(run, parent_id=parent, depends_on=awaited, known_as=known_as)
    with caller.run.asking(join_name(known_as)) if caller.run is not None else nullcontext():
        made = yield partial(ops.add_join, join, caller.attempt)
    if made.created:
        yield Ring([join.queue])
    record: RunRecord = made.run
    return record
