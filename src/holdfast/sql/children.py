"""The children that a run, a job or a map has added, stored as steps by name, so that a repeated request finds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from holdfast.domain.values import KnownAs
from holdfast.sql.runs import loaded
from holdfast.sql.statement import Row, Statement, each, plain_array, text_array

# Names of user steps cannot start with this.
PREFIX = "holdfast:"


class Stored(NamedTuple):
    """A stored child: its name, the attempt that added it (0 if added from outside a run), and its description."""

    known_as: KnownAs
    attempt: int
    what: dict[str, Any]


def _stored(row: Row) -> Stored:
    return Stored(KnownAs(row[0], row[1].removeprefix(PREFIX)), row[2], loaded(row[3]))


def record(known_as: KnownAs, attempt: int, what: dict[str, Any]) -> Statement[int]:
    """Reserve a name permanently. Return 0 if it is taken; wait for a concurrent transaction that is reserving it."""
    return Statement(
        """
        insert into holdfast.steps (run_id, name, attempt, recorded_at, result)
        values (%(origin)s::uuid, %(name)s, %(attempt)s, holdfast.now(), %(what)s::json)
        on conflict (run_id, name) do nothing returning run_id
        """,
        {
            "origin": known_as.origin,
            "name": PREFIX + known_as.name,
            "attempt": attempt,
            "what": orjson.dumps(what).decode(),
        },
        len,
        together=True,
    )


def find_many(names: Sequence[KnownAs]) -> Statement[list[Stored]]:
    return Statement(
        """
        select steps.run_id::text, steps.name, steps.attempt, steps.result::text
        from unnest(%(origins)s::uuid[], %(names)s::text[]) as given (origin, name)
        join holdfast.steps on steps.run_id = given.origin and steps.name = given.name
        """,
        {
            "origins": plain_array([one.origin for one in names]),
            "names": text_array([PREFIX + one.name for one in names]),
        },
        each(_stored),
    )


def of_run(run_id: str) -> Statement[list[Stored]]:
    """Return all children that the attempts of a run have added, in order."""
    return Statement(
        """
        select run_id::text, name, attempt, result::text from holdfast.steps
        where run_id = %(run_id)s::uuid and starts_with(name, %(prefix)s) order by recorded_at, name
        """,
        {"run_id": run_id, "prefix": PREFIX},
        each(_stored),
    )


def edges(run_id: str) -> Statement[list[tuple[str, str]]]:
    """Return the dependencies of a run, each with its policy."""
    return Statement(
        "select on_id::text, policy from holdfast.dependencies where run_id = %(run_id)s::uuid order by on_id",
        {"run_id": run_id},
        each(lambda row: (str(row[0]), str(row[1]))),
    )
