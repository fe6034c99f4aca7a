"""Convert statements for asyncpg: numbered parameters, and each value of the type that Postgres expects.

Our statements have named parameters and pass ids, arrays and JSON as text, which psycopg lets Postgres parse. asyncpg
accepts only values of the type that Postgres has inferred for each parameter. So we ask Postgres for these types, once
per statement, and cast the parameters that are passed as text but have another type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

_PARAMETER = re.compile(r"%(?:\((\w+)\)s|%)")
_TEXTS = frozenset({"text", "varchar", "bpchar", "name", "unknown"})


class Numbered(NamedTuple):
    """A statement with numbered parameters, and their names in that order."""

    sql: str
    names: tuple[str, ...]


@lru_cache(maxsize=1000)
def numbered(sql: str, casts: tuple[tuple[str, str], ...] = ()) -> Numbered:
    """Number the parameters of a statement; those with a cast are sent as text and cast to that type."""
    order: dict[str, int] = {}
    types = dict(casts)

    def placeholder(found: re.Match[str]) -> str:
        name = found[1]
        if name is None:
            return "%"
        number = order.setdefault(name, len(order) + 1)
        return f"${number}::text::{types[name]}" if name in types else f"${number}"

    return Numbered(_PARAMETER.sub(placeholder, sql), tuple(order))


# The types of the parameters that are not text, with one entry per statement.
_types: dict[str, Mapping[str, str]] = {}


async def learn_types(connection: Any, sql: str) -> Mapping[str, str]:
    """Ask Postgres for the parameter types of a statement, on an asyncpg connection."""
    known = _types.get(sql)
    if known is None:
        plain = numbered(sql)
        # Unnamed: behind a pooler, a named statement may already exist, or may not be found again.
        prepared = await connection.prepare(plain.sql, name="")
        known = {
            name: _written(found)
            for name, found in zip(plain.names, prepared.get_parameters(), strict=True)
            if found.name not in _TEXTS
        }
        _types[sql] = known
    return known


def bound(sql: str, types: Mapping[str, str], params: Mapping[str, object]) -> tuple[str, Sequence[object]]:
    """The statement and its values in the order of their numbers."""
    casts = tuple((name, kind) for name, kind in types.items() if isinstance(params[name], str))
    made = numbered(sql, casts)
    return made.sql, tuple(params[name] for name in made.names)


def _written(kind: Any) -> str:
    """Return the name of a type in SQL, independent of the search path."""
    name = kind.name.removesuffix("[]")
    return f'{kind.schema}."{name}"' + ("[]" if kind.kind == "array" else "")
