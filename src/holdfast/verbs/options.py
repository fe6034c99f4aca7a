"""The options of a submit: their checks, and everything that a run has besides its id and payload."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple, TypedDict

import orjson

from holdfast.domain.errors import Problem, refused
from holdfast.domain.ids import parse_id
from holdfast.domain.policies import Retry
from holdfast.domain.tasks import Task, is_key, is_priority
from holdfast.domain.times import START, is_duration, is_start
from holdfast.domain.values import Dependency, NewRun
from holdfast.runtime.settings import Settings

Dedupe = str | timedelta | float | int


class SubmitOptions(TypedDict, total=False):
    """What `submit` takes besides the task and its parameters. None leaves the choice to the task."""

    key: str | None
    """Requests with the same key return the same run, however often they are sent."""
    queue: str | None
    priority: int | None
    """From -100 to 100; higher first."""
    run_after: datetime | timedelta | None
    """The earliest start: a time with its zone, or a delay."""
    dedupe: Dedupe | None
    """`"off"`, `"active"`, or for how long a run with the same payload is returned instead of making another."""
    concurrency_key: str | None
    depends_on: Sequence[Any] | None
    """Runs, or their ids, that have to succeed first; `{"run": id, "on": "failure"}` requires another outcome."""
    tags: Sequence[str] | None


OPTIONS = tuple(SubmitOptions.__annotations__)
POLICIES = ("success", "failure", "always")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True)
class Submission:
    """One run to submit, for `submit_many` with mixed tasks: a task, its parameters, and `submit`'s options."""

    task: Task | str | Callable[..., Any]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    options: SubmitOptions = field(default_factory=SubmitOptions)


@dataclass(frozen=True)
class Submitter:
    """Who submits: the owner of idempotency keys, the name to record, and the trace that the request belongs to."""

    scope: str = ""
    name: str | None = None
    traceparent: str | None = None


ANONYMOUS = Submitter()


class Template(NamedTuple):
    """What runs of a task have in common, and the version of the registry that it was made from."""

    task: Task
    head: NewRun
    version: int = 0


def head_of(
    settings: Settings,
    found: Task,
    parameters: Any,
    submitter: Submitter,
    options: Mapping[str, Any],
    default_dedupe: Dedupe | None = None,
) -> NewRun:
    """Return everything about a run except its id and payload."""
    problems = unknown_fields(options, OPTIONS)
    key = _key(options.get("key"), settings, problems)
    queue = _queue(options.get("queue"), found, problems)
    priority = _priority(options.get("priority"), found, problems)
    run_after = _run_after(options.get("run_after"), problems)
    dedupe = _dedupe(_first(options.get("dedupe"), default_dedupe, found.dedupe), problems)
    tags = _tags(options.get("tags"), found, settings, problems)
    concurrency_key = _short_text("concurrency_key", options.get("concurrency_key"), problems)
    depends_on = _depends_on(options.get("depends_on"), problems)
    if parameters is not None and not isinstance(parameters, Mapping):
        problems.append(Problem("/parameters", "must be an object"))
    if problems:
        raise refused(*problems)
    return NewRun(
        id="",
        task=found.name,
        parameters="{}",
        payload_hash="",
        queue=queue,
        priority=priority,
        run_after=run_after,
        policy=stored_policy(found, settings),
        tags=tags,
        key=key,
        scope=submitter.scope,
        key_ttl=timedelta(seconds=settings.key_seconds),
        dedupe=dedupe,
        dedupe_window=timedelta(seconds=settings.dedupe_seconds),
        concurrency_key=concurrency_key,
        submitted_by=submitter.name,
        traceparent=submitter.traceparent,
        depends_on=depends_on,
    )


def stored_policy(task: Task, settings: Settings) -> str | None:
    """What a run keeps of its task's policies, so that any process can settle it; None if all are the defaults."""
    timeout = task.timeout.total_seconds() if task.timeout else settings.task_timeout_seconds
    return _policy_text(task.retry, timeout, settings.max_attempts)


@lru_cache(maxsize=1000)
def _policy_text(retry: Retry | None, timeout: float | None, max_attempts: int) -> str | None:
    policy: dict[str, Any] = dict((retry or Retry(max_attempts=max_attempts)).to_json())
    if timeout is not None:
        policy["timeout"] = timeout
    return orjson.dumps(policy).decode() if policy else None


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def unknown_fields(given: Mapping[str, Any], known: Sequence[str]) -> list[Problem]:
    """A problem for each field that is not known, with the name that may have been meant."""
    problems = []
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            problems.append(Problem(f"/{name}", "unknown field" + (f"; did you mean {near[0]}?" if near else "")))
    return problems


def _key(key: Any, settings: Settings, problems: list[Problem]) -> str | None:
    if key is None:
        return None
    if not is_key(key, settings.max_key_length):
        problems.append(Problem("/key", f"must be 1 to {settings.max_key_length} visible ASCII characters"))
    return str(key)


def _short_text(name: str, value: Any, problems: list[Problem]) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not 1 <= len(value) <= 255 or not _storable(value):
        problems.append(Problem(f"/{name}", "must be 1 to 255 characters"))
    return str(value)


def _storable(text: str) -> bool:
    """Postgres stores neither NUL nor half of a surrogate pair."""
    return _UNSTORABLE.search(text) is None


def _queue(queue: Any, task: Task, problems: list[Problem]) -> str:
    return _short_text("queue", _first(queue, task.queue), problems) or "default"


def _priority(priority: Any, task: Task, problems: list[Problem]) -> int:
    value = _first(priority, task.priority)
    if not is_priority(value):
        problems.append(Problem("/priority", "must be a whole number from -100 to 100"))
        return 0
    return int(value)


def _run_after(value: Any, problems: list[Problem]) -> datetime | timedelta | None:
    if value is not None and not is_start(value):
        problems.append(Problem("/run_after", START))
        return None
    found: datetime | timedelta | None = value
    return found


def _dedupe(value: Any, problems: list[Problem]) -> str | timedelta:
    if value in ("off", "active"):
        return str(value)
    if is_duration(value):
        return value if isinstance(value, timedelta) else timedelta(seconds=value)
    problems.append(Problem("/dedupe", 'must be "active", "off", or a number of seconds below 1e9'))
    return "off"


def _tags(tags: Any, task: Task, settings: Settings, problems: list[Problem]) -> tuple[str, ...]:
    given: Sequence[Any] = _first(tags, task.tags)
    if isinstance(given, str) or not isinstance(given, Sequence):
        problems.append(Problem("/tags", "must be a list of strings"))
        return ()
    if len(given) > settings.max_tags:
        problems.append(Problem("/tags", f"must have at most {settings.max_tags} items"))
    for index, tag in enumerate(given):
        if not isinstance(tag, str) or not 1 <= len(tag) <= settings.max_tag_length or not _storable(tag):
            problems.append(Problem(f"/tags/{index}", f"must be 1 to {settings.max_tag_length} characters"))
    return tuple(str(tag) for tag in given)


def _depends_on(value: Any, problems: list[Problem]) -> tuple[Dependency, ...]:
    found: dict[str, Dependency] = {}
    for index, (name, policy) in enumerate(awaited(value, problems)):
        on_id = parse_id(name)
        if on_id is None:
            problems.append(Problem(f"/depends_on/{index}", f"{name!r} is not the id of a run"))
        elif found.setdefault(on_id, Dependency(on_id, policy)).policy != policy:
            problems.append(Problem(f"/depends_on/{index}", f"{name} is named twice, with different policies"))
    return tuple(found.values())


def awaited(value: Any, problems: list[Problem]) -> list[tuple[str, str]]:
    """What a list of dependencies names, each with its policy: ids, keys, or objects with an id."""
    if value is None:
        return []
    if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
        problems.append(Problem("/depends_on", "must be a list"))
        return []
    pairs = []
    for index, item in enumerate(value):
        name, policy = item, "success"
        if isinstance(item, Mapping):
            name, policy = _first(item.get("task"), item.get("run")), item.get("on", "success")
            if set(item) - {"task", "run", "on"}:
                problems.append(
                    Problem(f"/depends_on/{index}", 'must have "task" or "run", optionally "on", and nothing else')
                )
        name = getattr(name, "id", name)
        if not isinstance(name, str) or not name:
            problems.append(Problem(f"/depends_on/{index}", "must name a run or a task"))
        elif policy not in POLICIES:
            problems.append(Problem(f"/depends_on/{index}/on", f"must be one of {', '.join(POLICIES)}"))
        else:
            pairs.append((name, policy))
    return pairs
