"""Methods made from verbs: each has the name, the docstring and the signature of the verb's declaration.

Type checkers follow the ParamSpec of the function that makes the method. This is for inspection at run time: `help`,
editors in a live session, and tools that read signatures.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from holdfast.verbs.verb import Verb

M = TypeVar("M", bound=Callable[..., Any])

SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)


def signed(
    method: M,
    verb: Verb[..., Any],
    handles: Mapping[str, str] = {},
    *,
    hides: int = 0,
) -> M:
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
