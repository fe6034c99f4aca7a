"""A verb as a value, and the decorator that declares one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

from holdfast.documents.shapes import Part
from holdfast.domain.values import RunRecord
from holdfast.sql.statement import Op
from holdfast.verbs.caller import Caller
from holdfast.verbs.forms import NO_ANSWER, Form
from holdfast.verbs.openapi import MISSING, NO_BODY, PATH_PARAMETERS, operation, problem
from holdfast.verbs.procedures import Procedure

P = ParamSpec("P")
T = TypeVar("T")

MakeOp = Callable[[], Op[T]]
"""Makes the operation, once for each try: a client that lost its connection tries again."""

Plan = MakeOp[T] | Procedure[T]
"""What a verb does: one operation, or a procedure of several operations, each in its own transaction."""


class Hints(NamedTuple):
    """The hints to send after a call, and the runs that they are about."""

    hints: Iterable[str]
    runs: Iterable[RunRecord] = ()


class Event(NamedTuple):
    """What the API logs after a call."""

    name: str
    fields: Mapping[str, Any]


class Endpoint(NamedTuple):
    """A route, such as `GET /runs`, the scope it needs, and its name and summary in the OpenAPI document."""

    route: str
    scope: str
    name: str
    summary: str


class Http:
    """The endpoint of a verb, and what the OpenAPI document says about it.

    The first argument of the verb is part of the path. The others are in the query or in the body, under the names that
    `parts` describe. If the request of a verb is made in another way, `request` is the function that makes it.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        about: str,
        *,
        form: Form,
        status: Callable[[Any], int],
        event: Callable[[Any], Event] | None,
        request: Callable[..., Any] | None,
        **parts: Any,
    ) -> None:
        self.method, self.path = endpoint.route.split()
        self.scope = endpoint.scope
        self.answer = form
        self.status = status
        self.event = event
        self.request = request
        # The path parameter that identifies the subject of the call: a run, a job, a queue or a worker.
        _, brace, rest = self.path.partition("{")
        self.subject = rest.partition("}")[0] if brace else None
        if self.subject is not None:
            parts = {"parameters": [PATH_PARAMETERS[self.subject], *parts.pop("parameters", ())], **parts}
            if self.subject in MISSING:
                parts["answers"] = dict(sorted({404: problem(MISSING[self.subject]), **parts["answers"]}.items()))
        if self.method != "GET":
            parts.setdefault("requestBody", NO_BODY)
        self.operation = operation(endpoint.name, endpoint.summary, about, **parts)

    @cached_property
    def query(self) -> tuple[str, ...]:
        """The names of the parameters in the query."""
        return tuple(one["name"] for one in self.operation.get("parameters", ()) if one["in"] == "query")

    @cached_property
    def body(self) -> Mapping[str, Part]:
        """The fields of the body, each with its schema."""
        content = self.operation.get("requestBody", {}).get("content", {})
        fields: Mapping[str, Part] = content.get("application/json", {}).get("schema", {}).get("properties", {})
        return fields


class CommandOption(NamedTuple):
    """An option of a command, named after the verb's parameter."""

    name: str
    help: str
    kind: str = "text"


class Command(NamedTuple):
    """How a command presents a verb. `says` is printed after the id of the run."""

    help: str
    says: Callable[[Any], str]
    options: tuple[CommandOption, ...] = ()


@dataclass(frozen=True, eq=False)
class Verb(Generic[P, T]):
    """One call. `plan` checks its arguments, and returns what is to be performed."""

    plan: Callable[Concatenate[Caller, P], Plan[T]]
    rings: Callable[[Any], Hints | None] | None = None
    repeatable: bool = True
    refused_in_transaction: str | None = None
    http: Http | None = None
    command: Command | None = None

    @property
    def name(self) -> str:
        return self.plan.__name__

    @cached_property
    def parameters(self) -> inspect.Signature:
        """The parameters of the call, without the caller."""
        declared = inspect.signature(self.plan)
        return declared.replace(parameters=list(declared.parameters.values())[1:])


def verb(
    endpoint: Endpoint | None = None,
    about: str = "",
    *,
    rings: Callable[[Any], Hints | None] | None = None,
    repeatable: bool = True,
    refused_in_transaction: str | None = None,
    command: Command | None = None,
    form: Form = NO_ANSWER,
    status: Callable[[Any], int] = lambda answer: 200,
    event: Callable[[Any], Event] | None = None,
    request: Callable[..., Any] | None = None,
    **parts: Any,
) -> Callable[[Callable[Concatenate[Caller, P], Plan[T]]], Verb[P, T]]:
    """Declare a verb: the decorated function has its public signature and docstring, and returns its plan.

    A verb that the API offers has an `endpoint`; the arguments of Http describe it. A verb that is not
    `repeatable` is not tried again after a connection is lost. `refused_in_transaction` says why it cannot be called in
    a caller's transaction.
    """
    http = Http(endpoint, about, form=form, status=status, event=event, request=request, **parts) if endpoint else None

    def declare(plan: Callable[Concatenate[Caller, P], Plan[T]]) -> Verb[P, T]:
        return Verb(plan, rings, repeatable, refused_in_transaction, http, command)

    return declare


def declared(module: ModuleType) -> Iterator[Verb[..., Any]]:
    """The verbs of a module, in the order of their declarations."""
    return (value for value in vars(module).values() if isinstance(value, Verb))


M = TypeVar("M", bound=Callable[..., Any])

SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)


def signed(method: M, verb: Verb[..., Any], handles: Mapping[str, str] = {}, *, hides: int = 0) -> M:
    """Return the method with the name, docstring and signature of a verb, without its first `hides` parameters.

    `handles` has the annotation of the method for answers that it returns as something else.
    """
    parameters = [SELF, *list(verb.parameters.parameters.values())[hides:]]
    answer = _answer(str(verb.parameters.return_annotation))
    returns = handles.get(answer, answer)
    method.__doc__ = verb.plan.__doc__
    method.__name__ = verb.name
    method.__signature__ = inspect.Signature(parameters, return_annotation=returns)  # type: ignore[attr-defined]
    return method


def _answer(annotation: str) -> str:
    """Return the annotated result of a plan: X for `MakeOp[X]` and `Procedure[X]`."""
    return annotation.partition("[")[2][:-1]
