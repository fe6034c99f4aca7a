"""Arguments of a task as the parameters of a run: checked strictly, before any SQL.

If Postgres rejected a value, it would abort the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from holdfast.django.compat import normalize_json
from holdfast.domain.canonical import canonicalize
from holdfast.domain.errors import NotCanonical


class Arguments(NamedTuple):
    """Arguments as they will be read back from the database, the stored text, and its hash."""

    args: list[Any]
    kwargs: dict[str, Any]
    text: str
    payload_hash: str


def encoded(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
    """Raise TypeError, as Django's backends do, for values that JSON or Postgres cannot store."""
    try:
        given = {"args": normalize_json(list(args)), "kwargs": normalize_json(dict(kwargs))}
        canonical, payload_hash = canonicalize(given)
    except RecursionError:
        raise TypeError("Unsupported type: the arguments are nested too deeply, or contain themselves") from None
    except NotCanonical as error:
        raise TypeError(f"Unsupported type: {error}") from None
    text = _text(given) or canonical
    stored = orjson.loads(text)
    return Arguments(stored["args"], stored["kwargs"], text, payload_hash)


def _text(given: Any) -> str | None:
    """The text to store. Unlike the canonical text, it keeps 1.0 a float, and keyword arguments in their order.

    None for the few values that only the canonical text can represent, such as 10**21.
    """
    try:
        return orjson.dumps(given, default=float).decode()
    except TypeError:
        return None
