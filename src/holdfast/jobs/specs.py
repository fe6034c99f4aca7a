"""Jobs and tasks as callers describe them: parsing, and every check that needs no database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import orjson

from holdfast.domain.errors import BadInput, Problem, refused
from holdfast.domain.ids import new_id, parse_id
from holdfast.domain.jobs import NewJob
from holdfast.domain.states import Status
from holdfast.domain.times import is_duration
from holdfast.domain.values import Dependency, NewRun
from holdfast.runtime.settings import Settings
from holdfast.verbs.caller import Caller
from holdfast.verbs.options import awaited, unknown_fields
from holdfast.verbs.submissions import prepare

OPTIONS = ("queue", "priority", "run_after", "tags")
FIELDS = ("entrypoint", "kwargs", "key", "depends_on", "critical", "max_retries", "timeout", *OPTIONS)
KEY_LENGTH = 255
# Other names that are accepted for statuses, for compatibility with aaiclick.
STATUSES = {status.value.lower(): status.value for status in Status} | {"completed": "SUCCEEDED"}


class Spec(NamedTuple):
    """A task to be created: its run, without an id; its key; and its dependencies by key or id, each with a policy."""

    run: NewRun
    key: str | None
    awaits: list[tuple[str, str]]


def parse(settings: Settings, given: Any, pointer: str = "") -> Spec:
    """Parse one task: `{"entrypoint", "kwargs", "key"?, "depends_on"?, ...}`. Raises BadInput, with all problems."""
    if not isinstance(given, Mapping):
        raise BadInput(
            f"a task must be a mapping with an entrypoint, not {given!r}", [Problem(pointer, "not an object")]
        )
    problems = unknown_fields(given, FIELDS)
    if "entrypoint" not in given:
        problems.append(Problem("/entrypoint", "missing"))
    awaits = awaited(given.get("depends_on"), problems)
    key = _key(given.get("key"), problems)
    policy = _policy(given, problems)
    run: NewRun | None = None
    if "entrypoint" in given:
        options = {name: given[name] for name in OPTIONS if given.get(name) is not None}
        try:
            run = prepare(settings, given["entrypoint"], given.get("kwargs"), dedupe="off", **options)
        except BadInput as error:
            if not error.problems:
                raise
            problems += [Problem(_renamed(p.pointer), p.detail) for p in error.problems]
    if problems or run is None:
        raise refused(*(Problem(pointer + p.pointer, p.detail) for p in problems))
    if policy:
        merged = {**(orjson.loads(run.policy) if run.policy else {}), **policy}
        run = replace(run, policy=orjson.dumps(merged).decode())
    return Spec(replace(run, child_key=key), key, awaits)


def _renamed(pointer: str) -> str:
    for ours, theirs in (("/parameters", "/kwargs"), ("/model", "/entrypoint")):
        if pointer == ours or pointer.startswith(ours + "/"):
            return theirs + pointer.removeprefix(ours)
    return pointer


def _key(key: Any, problems: list[Problem]) -> str | None:
    if key is None:
        return None
    if not isinstance(key, str) or not 1 <= len(key) <= KEY_LENGTH or not key.isprintable() or parse_id(key):
        problems.append(
            Problem("/key", f"must be 1 to {KEY_LENGTH} printable characters, and must not look like an id")
        )
    return str(key)


def _policy(given: Mapping[str, Any], problems: list[Problem]) -> dict[str, Any]:
    policy: dict[str, Any] = {}
    retries = given.get("max_retries")
    if retries is not None:
        if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries < 1_000_000:
            problems.append(Problem("/max_retries", "must be a whole number of at least 0"))
        else:
            policy["max_attempts"] = retries + 1
    timeout = seconds_of(given.get("timeout"), "/timeout", problems)
    if timeout is not None:
        policy["timeout"] = timeout
    if not isinstance(given.get("critical", True), bool):
        problems.append(Problem("/critical", "must be true or false"))
    elif not given.get("critical", True):
        policy["critical"] = False
    return policy


def seconds_of(value: Any, pointer: str, problems: list[Problem]) -> float | None:
    """Return a duration in seconds, given as a number or as a timedelta."""
    if value is None:
        return None
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not is_duration(seconds, least=0.001):
        problems.append(Problem(pointer, "must be a number of seconds, at least 0.001, or a timedelta"))
        return None
    return float(seconds)


def placed(specs: Sequence[Spec], ids: Sequence[str], job_id: str, known: Mapping[str, str]) -> list[NewRun]:
    """Return the runs of these tasks with their ids, and with dependencies by id.

    A key refers to a task of the same list first, then to a `known` one. Raises BadInput for a key that refers to no
    task or to two tasks, and for tasks that depend on each other in a cycle.
    """
    own: dict[str, int] = {}
    problems = []
    for index, spec in enumerate(specs):
        if spec.key is not None and own.setdefault(spec.key, index) != index:
            problems.append(Problem(f"/tasks/{index}/key", f"{spec.key!r} is also the key of task {own[spec.key]}"))
    graph: list[list[int]] = []
    runs = []
    for index, (spec, id_) in enumerate(zip(specs, ids, strict=True)):
        edges: dict[str, Dependency] = {}
        graph.append([own[name] for name, _ in spec.awaits if name in own])
        for place, (name, policy) in enumerate(spec.awaits):
            on_id = ids[own[name]] if name in own else known.get(name) or parse_id(name)
            at = f"/tasks/{index}/depends_on/{place}"
            if on_id is None:
                problems.append(Problem(at, f"no task has the key {name!r}"))
            elif edges.setdefault(on_id, Dependency(on_id, policy)).policy != policy:
                problems.append(Problem(at, f"{name!r} is named twice, with different policies"))
        runs.append(replace(spec.run, id=id_, job_id=job_id, depends_on=tuple(edges.values())))
    cycle = _cycle(graph)
    if cycle:
        names = " -> ".join(str(specs[index].key) for index in cycle)
        problems.append(Problem(f"/tasks/{cycle[0]}/depends_on", f"tasks wait for each other in a cycle: {names}"))
    if problems:
        raise refused(*problems)
    return runs


def _cycle(graph: Sequence[Sequence[int]]) -> list[int]:
    """Return a path from a node back to itself, if there is one."""
    finished = [False] * len(graph)
    for start in range(len(graph)):
        path, place = [start], {start: 0}
        ways = [iter(graph[start])]
        while ways and not finished[start]:
            step = next(ways[-1], None)
            if step is None:
                ways.pop()
                finished[path[-1]] = True
                del place[path.pop()]
            elif step in place:
                return [*path[place[step] :], step]
            elif not finished[step]:
                place[step] = len(path)
                path.append(step)
                ways.append(iter(graph[step]))
    return []


def new_job(caller: Caller, name: Any, description: Any, timeout: Any, id_: str | None = None) -> NewJob:
    """Check the name, the description and the timeout of a job."""
    problems: list[Problem] = []
    seconds = seconds_of(timeout, "/timeout", problems)
    if seconds is None:
        seconds = caller.settings.job_timeout_seconds
    for field, text, most in (("name", name, 255), ("description", description, 10_000)):
        if (text is not None or field == "name") and (
            not isinstance(text, str) or not 1 <= len(text) <= most or "\0" in text
        ):
            problems.append(Problem(f"/{field}", f"must be 1 to {most} characters"))
    if problems:
        raise refused(*problems)
    return NewJob(id_ or new_id(), name, description, timedelta(seconds=seconds) if seconds else None, caller.name)


def status_of(text: str | None) -> str | None:
    """Return a status, given in upper or lower case; `completed` is accepted for SUCCEEDED."""
    if text is None:
        return None
    found = STATUSES.get(str(text).lower())
    if found is None:
        raise BadInput(
            f"{text!r} is not a status; use {', '.join(sorted(STATUSES))}", [Problem("/status", "unknown status")]
        )
    return found
