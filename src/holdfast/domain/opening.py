"""Parameters that are references: they travel as JSON and are opened where the task is called.

A view, and the results of a map, would be too large to travel themselves. Only what is listed here is ever opened, and
only at the top of a task's parameters, under its own name.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

# By parameter: the mark of its reference, and what opens it. A name, since the domain knows nothing of datasets.
OPENERS = {
    "view": ("$view", "holdfast.jobs.views:open_view"),
    "results": ("$results", "holdfast.jobs.results:open_results"),
}


NONE: frozenset[str] = frozenset()


def references(parameters: Mapping[str, Any]) -> frozenset[str]:
    """The names of those parameters that are references."""
    if "view" not in parameters and "results" not in parameters:
        return NONE
    return frozenset(name for name in OPENERS if _is_reference(name, parameters.get(name)))


def _is_reference(name: str, value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and OPENERS[name][0] in value


def opened(parameters: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """What these references stand for."""
    found = {}
    for name in names:
        mark, opener = OPENERS[name]
        module, _, function = opener.partition(":")
        found[name] = getattr(import_module(module), function)(parameters[name][mark])
    return found
