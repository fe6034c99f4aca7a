"""Methods made from verbs: each has the name, the docstring and the signature of the verb's declaration.

Type checkers follow the ParamSpec of the function that makes the method. This is for what looks at run time: `help`,
editors in a live session, and tools that read signatures.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from holdfast.verbs.verb import Verb

M = TypeVar("M", bound=Callable[..., Any])

# What the annotation of a plan has around the answer of the call.
_WRAPPERS = ("MakeOp[", "Procedure[")


def signed(method: M, verb: Verb[..., Any], returns: str | None = None, *, hides: int = 0, has_self: bool = True) -> M:
    """Return the method with the name, docstring and signature of a verb, without its first `hides` parameters."""
    parameters = list(verb.parameters.parameters.values())[hides:]
    if has_self:
        parameters.insert(0, inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY))
    returns = returns or _returned(str(verb.parameters.return_annotation))
    method.__doc__ = verb.plan.__doc__
    method.__name__ = verb.name
    method.__signature__ = inspect.Signature(parameters, return_annotation=returns)  # type: ignore[attr-defined]
    return method


def _returned(annotation: str) -> str:
    """The annotation of the answer of a call."""
    for wrapper in _WRAPPERS:
        if annotation.startswith(wrapper):
            return annotation[len(wrapper) : -1]
    return annotation
