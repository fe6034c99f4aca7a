"""Children: each child that a run adds has a name, so that later attempts can find it.

A stored child is never replaced. A later attempt that requests the same child gets the stored one; an attempt that
requests something else under the same name gets an error that lists the differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson

from holdfast.domain.canonical import differences
from holdfast.domain.errors import REMEDY, ChildDiffers
from holdfast.domain.ids import map_id_after, place_of, placed_id
from holdfast.domain.jobs import MapRecord, NewMap
from holdfast.domain.masking import is_secret
from holdfast.domain.values import AttemptRef, NewRun, RunRecord
from holdfast.sql import children, jobs, maps
from holdfast.sql.statement import Op

SHOWN = 80


def next_place(job_id: str) -> Op[int]:
    """Return the position of the next task in the order of a job's tasks."""
    last = yield from jobs.last_task(job_id)
    return place_of(last) + 1 if last is not None else 0


def take_name(new: NewRun, by: AttemptRef | None) -> Op[NewRun]:
    """Return the run with the id of its name: the stored id, or else a new one that sorts last in its job."""
    known_as = new.known_as
    if known_as is None:
        return new
    id_ = new.id
    # An earlier version may have added the child under the id in the request.
    if new.job_id is not None and not (_is_retry(by) and (yield from jobs.existing([new.id]))):
        id_ = placed_id(new.job_id, (yield from next_place(new.job_id)), f"{known_as.origin} {known_as.name}")
    taken = yield from children.record(known_as, by.number if by else 0, {"run": id_, "task": new.task})
    if not taken:
        stored = yield from children.find_many([known_as])
        id_ = stored[0].what["run"] if stored else id_
    return replace(new, id=id_)


def require_same_run(new: NewRun, stored: RunRecord) -> Op[None]:
    """Raise ChildDiffers unless a stored run has the requested task, arguments and dependencies."""
    edges = yield from children.edges(stored.id)
    _require_same(new, f"run {stored.id}", stored.task, stored.payload_hash, stored.parameters, edges)


def require_same(new: NewRun, before: NewRun) -> None:
    """Raise ChildDiffers unless two requests for a run that is created with its parent's success are the same."""
    edges = sorted((on_id, policy) for on_id, policy in before.depends_on)
    parameters = orjson.loads(before.parameters)
    _require_same(new, f"run {before.id}", before.task, before.payload_hash, parameters, edges)


def _require_same(
    new: NewRun, stored: str, task: str, payload_hash: str, parameters: Any, edges: Sequence[tuple[str, str]]
) -> None:
    different = []
    if task != new.task:
        different.append(f"task: stored {task}, requested {new.task}")
    elif payload_hash != new.payload_hash:
        different += diff({"kwargs": parameters}, {"kwargs": orjson.loads(new.parameters)})
    requested = sorted((on_id, policy) for on_id, policy in new.depends_on)
    if list(edges) != requested:
        different.append(f"depends_on: stored {_edges(edges)}, requested {_edges(requested)}")
    if different:
        raise differs(new.known_as.name if new.known_as is not None else f"key {new.child_key}", stored, different)


def take_map_name(new: NewMap, task: str, by: AttemptRef | None) -> Op[tuple[str, bool]]:
    """Return the id of the map with this name, and whether the name is new. Raise ChildDiffers."""
    known_as = new.known_as
    if known_as is None or (_is_retry(by) and (yield from maps.read(new.id)) is not None):
        return new.id, True
    place = (yield from next_place(new.job_id)) - 1
    id_ = map_id_after(place, new.job_id, f"{known_as.origin} {known_as.name}")
    what = {"map": id_, "task": task, "asked": dict(new.request)}
    if (yield from children.record(known_as, by.number if by else 0, what)):
        return id_, True
    stored = yield from children.find_many([known_as])
    if not stored:
        return id_, True
    map_id, asked = str(stored[0].what["map"]), stored[0].what["asked"]
    if asked != new.request:
        raise differs(known_as.name, f"map {map_id}", diff(asked, new.request))
    return map_id, False


def require_same_map(new: NewMap, task: str, stored: MapRecord) -> None:
    """Raise ChildDiffers unless a map that was stored without its request has the same runs."""
    mine = {"task": task, "slices": new.total, "dataset": orjson.loads(new.dataset)}
    found = {"task": stored.task, "slices": stored.total, "dataset": stored.dataset}
    if mine != found:
        raise differs(f"map {stored.id}", "a map that an earlier attempt created", diff(found, mine))


def diff(stored: Any, requested: Any) -> list[str]:
    """Describe the differences between two JSON values. Addresses and secrets are not shown."""
    lines = []
    for pointer in differences(stored, requested):
        if pointer.endswith("/url"):
            lines.append(f"{pointer}: another address")
        elif is_secret(pointer):
            lines.append(f"{pointer}: another value")
        else:
            lines.append(f"{pointer}: stored {_shown(stored, pointer)}, requested {_shown(requested, pointer)}")
    return lines


def stored_children(run_id: str) -> Op[dict[str, str]]:
    """Return the children that the attempts of a run have added, by name, each with a short description."""
    stored = yield from children.of_run(run_id)
    return {
        one.known_as.name: f"{one.known_as.name} ({one.what['task']}, added by attempt {one.attempt})" for one in stored
    }


def differs(name: str, stored: str, different: Sequence[str]) -> ChildDiffers:
    return ChildDiffers(
        f"{name} already refers to {stored}, and this request differs: {'; '.join(different)}. {REMEDY}", different
    )


def _is_retry(by: AttemptRef | None) -> bool:
    return by is not None and by.number > 1


def _edges(edges: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{on_id} ({policy})" for on_id, policy in edges) or "nothing"


def value_at(value: Any, pointer: str) -> Any:
    """Return the value at a JSON Pointer. Raise LookupError if there is none."""
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and name.isdigit():
            value = value[int(name)]
        elif isinstance(value, dict):
            value = value[name]
        else:
            raise LookupError(pointer)
    return value


def _shown(value: Any, pointer: str) -> str:
    """Return the value at a JSON Pointer, as a short text."""
    try:
        text = orjson.dumps(value_at(value, pointer)).decode()
    except LookupError:
        return "nothing"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
