"""Comparing two runs: the differences of their requests, policies and results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.domain.canonical import differences
from holdfast.domain.states import Status

if TYPE_CHECKING:
    from holdfast.verbs.facades import Calls
    from holdfast.verbs.handles import Run

AT_MOST = 1000


@dataclass(frozen=True)
class Difference:
    """One difference: its JSON Pointer, and the value of each run there, if it has one."""

    pointer: str
    in_a: bool
    a: Any
    in_b: bool
    b: Any

    def as_dict(self) -> dict[str, Any]:
        shown = {"pointer": self.pointer}
        return shown | ({"a": self.a} if self.in_a else {}) | ({"b": self.b} if self.in_b else {})


def compare(client: Calls, first: str, second: str) -> list[Difference]:
    """Where two runs differ."""
    a, b = _described(client, first), _described(client, second)
    if "result" not in a or "result" not in b:
        a.pop("result", None)
        b.pop("result", None)
    found = []
    for pointer in differences(a, b, AT_MOST):
        in_a, of_a = _at(a, pointer)
        in_b, of_b = _at(b, pointer)
        found.append(Difference(pointer, in_a, of_a, in_b, of_b))
    return found


def _described(client: Calls, run_id: str) -> dict[str, Any]:
    run: Run = client.get(run_id)
    described: dict[str, Any] = {
        "model": run.model,
        "status": str(run.status),
        "parameters": run.parameters,
        "queue": run.queue,
        "priority": run.priority,
        "max_attempts": run.max_attempts,
        "concurrency_key": run.concurrency_key,
        "tags": list(run.tags),
        "last_error": run.last_error,
    }
    if run.status is Status.SUCCEEDED:
        described["result"] = client.result(run)
    return described


def _at(value: Any, pointer: str) -> tuple[bool, Any]:
    """The value at a JSON Pointer, if there is one."""
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return False, None
    return True, value
