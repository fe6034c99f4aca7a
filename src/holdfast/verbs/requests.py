"""The HTTP request of a call, made from the verb's declaration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from holdfast.domain.canonical import canonicalize
from holdfast.domain.errors import BadInput, ConfigurationError, Problem, refused
from holdfast.domain.ids import new_id
from holdfast.domain.tasks import Task, is_key
from holdfast.domain.times import START, is_start
from holdfast.verbs.forms import Reply
from holdfast.verbs.subjects import SUBJECTS

if TYPE_CHECKING:
    from holdfast.verbs.options import Submission
    from holdfast.verbs.verb import Verb


@dataclass(frozen=True)
class Request:
    """A request. A `repeatable` one may be sent again if it is not known whether it arrived."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    repeatable: bool = True

    def after(self, cursor: str) -> Request:
        """The request for the page after this cursor."""
        return replace(self, query={**self.query, "cursor": cursor})


def request_of(verb: Verb[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Request:
    """The request that makes this call. Raises ConfigurationError if the API does not offer it."""
    http = verb.http
    if http is None:
        raise ConfigurationError(f"{verb.name} needs a database; the HTTP API does not offer it")
    if http.request is not None:
        made: Request = http.request(*args, **kwargs)
        return made
    given = verb.parameters.bind(*args, **kwargs).arguments
    path = http.path
    if http.subject is not None:
        subject = given[next(iter(verb.parameters.parameters))]
        path = path.replace(f"{{{http.subject}}}", quote(SUBJECTS[http.subject](subject), safe=""))
    query = {name: str(given[name]) for name in http.query if given.get(name) is not None}
    body = {name: plain(given[name], name) for name in http.body if given.get(name) is not None}
    return Request(http.method, path, query, body=written(body) if body else None, repeatable=verb.repeatable)


def read(verb: Verb[..., Any], reply: Reply) -> Any:
    """The answer to a call, from the reply of the API."""
    if verb.http is None:
        raise ConfigurationError(f"{verb.name} is not available over HTTP")
    return verb.http.answer.read(reply)


def plain(value: Any, name: str) -> Any:
    """A value as JSON: times as text, durations in seconds, and objects with an id as that id."""
    if name in ("run_after", "until"):
        return start(value, name)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if name == "depends_on":
        return [_dependency(one) for one in value]
    return list(value) if name == "tags" else value


def start(value: Any, name: str) -> str | float:
    """A start as JSON: a time as text, and a delay in seconds, to which the database adds its own time."""
    if not is_start(value):
        raise refused(Problem(f"/{name}", START))
    return value.total_seconds() if isinstance(value, timedelta) else str(value.isoformat())


def _dependency(one: Any) -> Any:
    if isinstance(one, Mapping):
        return {name: getattr(value, "id", value) for name, value in one.items()}
    return getattr(one, "id", one)


def written(document: Mapping[str, Any]) -> bytes:
    """As exact JSON; values that could not be stored are refused here already."""
    return canonicalize(document)[0].encode()


def task_name(task: Any, pointer: str = "/model") -> str:
    name = task if isinstance(task, str) else getattr(task, "name", None)
    if not isinstance(name, str):
        raise BadInput(f"{task!r} is not a task; name one, or decorate it with @task", [Problem(pointer, "not a task")])
    return name


def encoded(task: Any, parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """Parameters as JSON; if this process has registered the task, its annotations say how to write other values."""
    return task.encode(parameters or {}) if isinstance(task, Task) else dict(parameters or {})


def run_request(task: Any, parameters: Mapping[str, Any] | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The document that requests a run. Unless it uses dedupe, it has a key, so that it can be sent again."""
    given = {name: plain(value, name) for name, value in options.items() if value is not None}
    if "key" not in given and given.get("dedupe", "off") == "off":
        given["key"] = f"auto-{new_id()}"
    return {"model": task_name(task), "parameters": encoded(task, parameters), **given}


def submit_request(task: Any, parameters: Mapping[str, Any] | None = None, **options: Any) -> Request:
    document = run_request(task, parameters, options)
    return Request("POST", "/runs", headers=key_header(document.pop("key", None)), body=written(document))


def many_of(task: Any, many: Iterable[Mapping[str, Any]] | None) -> list[Submission] | None:
    """The submissions of a mixed list; None if `many` has the parameters of one task."""
    if many is not None and (isinstance(task, str) or not isinstance(task, Iterable)):
        return None
    if many is None and isinstance(task, Iterable) and not isinstance(task, str):
        return list(task)
    raise BadInput("submit_many takes a task and a list of parameters, or a list of Submission values")


def submit_many_request(task: Any, many: Iterable[Mapping[str, Any]] | None = None, **options: Any) -> Request:
    submissions = many_of(task, many)
    if submissions is None:
        requests = [run_request(task, parameters, options) for parameters in many or ()]
    else:
        requests = [run_request(one.task, one.parameters, one.options) for one in submissions]
    return Request("POST", "/batches", body=written({"runs": requests}))


def key_header(key: Any) -> dict[str, str]:
    """The Idempotency-Key, if there is one."""
    if key is None:
        return {}
    if not is_key(key):
        raise BadInput("a key must have 1 to 255 visible ASCII characters", [Problem("/key", "not a key")])
    return {"Idempotency-Key": key}
