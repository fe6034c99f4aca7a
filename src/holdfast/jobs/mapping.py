"""map and collect: one task per slice of a dataset, and one that runs once after all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any

import orjson

from holdfast import ops
from holdfast.client.requests import resolve
from holdfast.domain.canonical import canonicalize
from holdfast.domain.errors import BadInput, Problem
from holdfast.domain.ids import SERIES_AT_MOST, derived_id, new_id
from holdfast.domain.jobs import NewJob, NewMap, Slice
from holdfast.domain.values import Dependency, NewRun
from holdfast.jobs import specs
from holdfast.jobs.calls import job_id_of, new_job
from holdfast.jobs.datasets import Dataset, Part, dataset_of
from holdfast.jobs.handles import JobTask, MapHandle
from holdfast.jobs.here import Here
from holdfast.jobs.procedures import Elsewhere, Procedure

CHUNK_SIZE = 10_000

# Stands where each slice's own view will be; no user's text can be it, for it is made anew in every process.
_HOLE = f"view {new_id()}"


def map_dataset(
    here: Here,
    /,
    task: Any,
    dataset: Any,
    chunk_size: int = CHUNK_SIZE,
    *,
    options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Procedure[MapHandle]:
    """Make one run of `task` for every `chunk_size` rows of a dataset, without reading them, in one transaction.

    Each is called with `view=`, its slice, and the kwargs. Inside a task of a job they join that job; elsewhere they
    make one. `options` are those of a task in `create_job`, and `job_id` for an existing job. Returns a handle for
    `collect` and `depends_on`.
    """
    here.checked()
    _require_size(chunk_size)
    given = dict(options or {})
    job_id, key = given.pop("job_id", None), given.pop("key", None)
    pinned: Dataset = yield Elsewhere(dataset_of(dataset).pinned)
    parts: list[Part] = yield Elsewhere(partial(pinned.parts, chunk_size))
    if len(parts) > SERIES_AT_MOST:
        raise BadInput(f"{len(parts)} slices are too many; choose a larger chunk_size", [Problem("/chunk_size", "")])
    job, map_id, job_id = _place(here, task, job_id, key)
    sample = {**kwargs, "view": {"$view": {}}}
    head = specs.parse(here.settings, {"entrypoint": task, "kwargs": sample, **given})
    if head.awaits:
        raise BadInput("the runs of a map cannot depend on others; map in a task that does", [Problem("/options", "")])
    parent = here.run.id if here.run is not None and here.run.job_id == job_id else None
    run = replace(head.run, job_id=job_id, map_id=map_id, parent_id=parent)
    new = NewMap(map_id, job_id, parent, orjson.dumps(pinned.description()).decode(), len(parts))
    slices = _slices(here, task, kwargs, pinned, parts, map_id)
    if (yield partial(ops.add_map, new, run, slices, here.ref, job)):
        here.ring([run.queue])
    return MapHandle(map_id, job_id, len(parts), run.task)


def _require_size(chunk_size: Any) -> None:
    if isinstance(chunk_size, bool) or not isinstance(chunk_size, int) or chunk_size < 1:
        raise BadInput(f"chunk_size is a number of rows, not {chunk_size!r}", [Problem("/chunk_size", "not positive")])


def _place(here: Here, task: Any, job_id: Any, key: str | None) -> tuple[NewJob | None, str, str]:
    """The job that a map belongs to, made with it if there is none, and the map's id."""
    if job_id is not None:
        job_id = job_id_of(job_id)
        return None, derived_id(here.child_id(job_id, key), "map"), job_id
    name = f"map {resolve(task).name}"[:255]
    if here.run is None:
        job = new_job(here, name, None, None)
        return job, derived_id(job.id, f"map {key}"), job.id
    origin = derived_id(here.run.id, f"map {here.run.child_name(key)}")
    if here.run.job_id is not None:
        return None, origin, here.run.job_id
    job = new_job(here, name, None, None, derived_id(origin, "job"))
    return job, origin, job.id


def _slices(
    here: Here, task: Any, kwargs: Mapping[str, Any], dataset: Dataset, parts: Sequence[Part], map_id: str
) -> Callable[[], list[Slice]]:
    """What each run is told. The canonical text is made once, and each slice's view is put into it."""
    ignored = resolve(task).ignore_in_hash
    before, _, after = canonicalize({**kwargs, "view": _HOLE})[0].partition(f'"{_HOLE}"')
    most = here.settings.max_body_bytes

    def make() -> list[Slice]:
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

    return make


def _view(dataset: Dataset, part: Part, map_id: str) -> str:
    """The canonical text of a slice's view."""
    inline = dataset.inline(part)
    if inline is None:
        place = canonicalize(part.place)[0]
        return f'{{"limit":{part.limit},"map":"{map_id}","offset":{part.offset},"place":{place}}}'
    if "range" in inline:
        start, stop, step = inline["range"]
        return f'{{"offset":{part.offset},"range":[{start},{stop},{step}]}}'
    return canonicalize(inline)[0]


def collect(
    here: Here, /, handle: Any, *, into: Any, options: Mapping[str, Any] | None = None, **kwargs: Any
) -> Procedure[JobTask]:
    """Add the task that runs once after all of a map, called with `results=` and the kwargs; returns it.

    The results come in the order of the slices, and are loaded as they are read. Asked twice with the same task, it is
    added once. It never runs if a slice failed, until that is retried.
    """
    here.checked()
    mapped = MapHandle.of(handle)
    given = dict(options or {})
    key = given.pop("key", None)
    reference = {"$results": {"map": mapped.id, "total": mapped.total}}
    spec = specs.parse(here.settings, {"entrypoint": into, "kwargs": {**kwargs, "results": reference}, **given})
    known: dict[str, str] = {}
    names = [name for name, _ in spec.awaits]
    if names:
        candidates = {name: here.named_ids(mapped.job_id, name) for name in names}
        known = yield partial(ops.find_tasks, mapped.job_id, candidates)
    id_ = derived_id(mapped.id, f"collect {key if key is not None else spec.run.task}")
    (run,) = specs.placed([spec], [id_], mapped.job_id, known)
    parent = here.run.id if here.run is not None and here.run.job_id == mapped.job_id else None
    join: NewRun = replace(run, parent_id=parent, depends_on=(Dependency(mapped.id), *run.depends_on))
    made = yield partial(ops.add_join, join, here.ref)
    if made.created:
        here.ring([join.queue])
    return JobTask(made.run, here.load_result)
