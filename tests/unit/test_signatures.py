"""Every public call has a real signature, and the typed example program uses it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from holdfast import AsyncClient, AsyncHttpClient, Client, HttpClient, Run
from holdfast.jobs import AsyncJobs, Jobs

PROGRAM = Path(__file__).parents[1] / "typing" / "program.py"
CLIENTS = (Client, AsyncClient, HttpClient, AsyncHttpClient, Jobs, AsyncJobs, Run)
# Not for users: the methods that run operations, and those that handles use.
INTERNAL = {
    "execute",
    "perform",
    "ring",
    "ring_later",
    "send",
    "load_tasks",
    "load_result",
    "blocking_client",
}
ANYTHING = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


def public_calls() -> Iterator[tuple[str, Callable[..., Any]]]:
    for kind in CLIENTS:
        for name, call in inspect.getmembers(kind, callable):
            if not name.startswith("_") and name not in INTERNAL:
                yield f"{kind.__name__}.{name}", call
    for module in ("holdfast", "holdfast.jobs", "holdfast.jobs.sync"):
        for name in import_module(module).__all__:
            call = getattr(import_module(module), name)
            if callable(call) and not inspect.isclass(call):
                yield f"{module}.{name}", call


@pytest.mark.parametrize(("name", "call"), [pytest.param(*one, id=one[0]) for one in public_calls()])
def test_public_call_has_named_parameters_and_a_docstring(name: str, call: Callable[..., Any]) -> None:
    parameters = [one for one in inspect.signature(call).parameters.values() if one.name != "self"]
    assert not parameters or any(map(is_named, parameters)), inspect.signature(call)
    assert call.__doc__ or name.startswith("Run.") or name.endswith(".close"), f"{name} has no docstring"


def is_named(parameter: inspect.Parameter) -> bool:
    return parameter.kind not in ANYTHING or str(parameter.annotation).startswith("Unpack[")


def test_typed_program_makes_every_public_client_call() -> None:
    text = PROGRAM.read_text()
    kinds = {kind.__name__ for kind in CLIENTS}
    found = (name.partition(".") for name, _ in public_calls())
    methods = {method for kind, _, method in found if kind in kinds}
    assert not {name for name in methods if not re.search(rf"\.{name}\(", text)}
