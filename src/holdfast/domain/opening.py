"""Parameters that are references: they are stored as JSON and opened where the task is called.

A view and the results of a map are too large to be parameters themselves. Only the references listed here are opened,
and only as top-level parameters with these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

# By parameter: the key of its reference, and the name of the function that opens it: domain must not import jobs.
OPENERS = {
    "view": ("$view", "holdfast.jobs.views:open_view"),
    "results": ("$results", "holdfast.jobs.results:open_results"),
}


NONE: frozenset[str] = frozenset()


def references(parameters: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the parameters that are references."""
    if "view" not in parameters and "results" not in parameters:
        return NONE
    return frozenset(name for name in OPENERS if _is_reference(name, parameters.get(name)))


def _is_reference(name: str, value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and OPENERS[name][0] in value


def opened(parameters: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """Open these references."""
    found = {}
    for name in names:
        key, opener = OPENERS[name]
        module, _, function = opener.partition(":")
        found[name] = getattr(import_module(module), function)(parameters[name][key])
    return found
