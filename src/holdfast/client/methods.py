"""Methods made from calls: each has the name, the docstring and the signature of the call that it makes.

Type checkers follow the ParamSpec of whatever makes the method. This is for everything that looks at run time: `help`,
editors in a live session, and tools that read signatures.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

M = TypeVar("M", bound=Callable[..., Any])

# What the annotation of a call wraps around what its method returns.
_WRAPPERS = ("Callable[[], ", "Op[", "Procedure[", "Ask[")


def signed(
    method: M,
    call: Callable[..., Any],
    wrap: Callable[..., Any] | None = None,
    *,
    hides: int = 1,
    has_self: bool = True,
) -> M:
    """Return the method with the name, docstring and signature of `call`, without its first `hides` parameters."""
    declared = inspect.signature(call)
    parameters = list(declared.parameters.values())[hides:]
    if has_self:
        parameters.insert(0, inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY))
    returns = _returned(declared.return_annotation, wrap)
    method.__doc__ = call.__doc__
    method.__name__ = call.__name__
    method.__signature__ = inspect.Signature(parameters, return_annotation=returns)  # type: ignore[attr-defined]
    return method


def _returned(annotation: str, wrap: Callable[..., Any] | None) -> str:
    """The annotation of the method's answer: that of `wrap`, unless it returns what the call does."""
    if wrap is not None and (given := str(inspect.signature(wrap).return_annotation)) != "T":
        return given
    for wrapper in _WRAPPERS:
        if annotation.startswith(wrapper):
            annotation = annotation[len(wrapper) : -1]
    return annotation
