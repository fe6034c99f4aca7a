"""Every statement, described by the database: it can be prepared, its parameters are typed, its rows can be decoded."""

from __future__ import annotations

import enum
import importlib
import inspect
import pkgutil
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from uuid import UUID

import psycopg
import pytest
from psycopg.adapt import PyFormat, Transformer

import holdfast.sql
from holdfast.sql.statement import Statement
from tests.explorer.wire import compiled

ID = "01890a5d-ac96-774b-bcce-b302099a8057"
HEX = "ab" * 32
# Parameters whose text must have a certain format.
TEXTS = {
    "payload_hash": HEX,
    "sha256": HEX,
    "digest": HEX,
    "parameters": "{}",
    "policy": "{}",
    "result": "1",
    "report": "{}",
    "status": "FAILED",
}


def statements() -> Iterator[tuple[str, Callable[..., Statement[Any]]]]:
    """The functions of the package that return a statement."""
    for module_info in pkgutil.iter_modules(holdfast.sql.__path__):
        module = importlib.import_module(f"holdfast.sql.{module_info.name}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            made_here = function.__module__ == module.__name__ and not name.startswith("_")
            if made_here and "Statement[" in str(inspect.signature(function).return_annotation):
                yield f"{module_info.name}.{name}", function


STATEMENTS = dict(statements())


# These are only for runs without special options.
SPARSE = {"submissions.insert_batch", "submissions.insert_one"}


def sample(kind: Any, name: str, *, sparse: bool = False) -> Any:
    """A value of this type from which a statement can be built; with only the required parts if sparse."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return sample(next(one for one in inner if one is not type(None)), name, sparse=sparse)
    if origin is typing.Literal:
        return inner[0]
    if origin in (dict, Mapping) or (origin and issubclass(origin, Mapping)):
        return {_hashable(sample(inner[0], "id")): sample(inner[1], name, sparse=sparse)}
    if origin is tuple:
        parts = inner[:1] if inner[-1] is Ellipsis else inner
        return tuple(sample(one, "id", sparse=sparse) for one in parts)
    if origin in (list, set, frozenset) or (origin and issubclass(origin, typing.Iterable)):
        value = sample(inner[0], name.removesuffix("s"), sparse=sparse)
        return {value} if origin in (set, frozenset) else [value]
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next(iter(kind))
    if isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields")):
        hints = typing.get_type_hints(kind)
        names = [f.name for f in fields(kind) if f.init] if is_dataclass(kind) else kind._fields
        optional = _optional(kind) if sparse else set()
        return kind(**{one: sample(hints[one], one, sparse=sparse) for one in names if one not in optional})
    if kind is str:
        return TEXTS.get(name, ID if name.endswith("id") or name in ("before", "low", "high", "node") else name)
    plain = {int: 1, float: 1.0, bool: True, bytes: b"x", datetime: datetime.now(UTC), timedelta: timedelta(hours=1)}
    return plain.get(kind, name)


def _optional(kind: Any) -> set[str]:
    if is_dataclass(kind):
        return {f.name for f in fields(kind) if f.default is not MISSING or f.default_factory is not MISSING}
    return set(kind._field_defaults)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def variants(name: str) -> Iterator[Statement[Any]]:
    """The statement with everything given, with only what must be given, and with each choice of a fixed set."""
    function = STATEMENTS[name]
    hints = typing.get_type_hints(function)
    parameters = inspect.signature(function).parameters
    needed = {name for name, parameter in parameters.items() if parameter.default is inspect.Parameter.empty}
    sparse = {one: sample(hints[one], one, sparse=True) for one in parameters if one in needed}
    yield function(*_positional(parameters, sparse), **_named(parameters, sparse))
    if name in SPARSE:
        return
    given = {one: sample(hints[one], one) for one in parameters}
    statuses = ("PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED")
    for status in statuses if given.get("status") == "FAILED" else (given.get("status"),):
        chosen = given | {"status": status} if "status" in given else given
        yield function(*_positional(parameters, chosen), **_named(parameters, chosen))


def _positional(parameters: Mapping[str, inspect.Parameter], given: Mapping[str, Any]) -> list[Any]:
    return [given[n] for n, p in parameters.items() if n in given and p.kind is not inspect.Parameter.KEYWORD_ONLY]


def _named(parameters: Mapping[str, inspect.Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    return {n: given[n] for n, p in parameters.items() if n in given and p.kind is inspect.Parameter.KEYWORD_ONLY}


class Watched(tuple[Any, ...]):
    """A row that records which of its columns were read."""

    seen: set[int]

    def __new__(cls, values: Sequence[Any]) -> Self:
        made = super().__new__(cls, values)
        made.seen = set()
        return made

    def __getitem__(self, at: Any) -> Any:
        self.seen.update(range(*at.indices(len(self))) if isinstance(at, slice) else [at % len(self)])
        return super().__getitem__(at)

    def __iter__(self) -> Iterator[Any]:
        for at, value in enumerate(super().__iter__()):
            self.seen.add(at)
            yield value


# A value for a column of each type, as psycopg would load it.
LOADED: dict[str, Any] = {
    "text": "SUCCEEDED",
    "name": "runs",
    "void": "",
    "int2": 1,
    "int4": 1,
    "int8": 1,
    "float8": 1.0,
    "numeric": 1,
    "bool": True,
    "bytea": b"\x00" * 32,
    "timestamptz": datetime(2026, 1, 1, tzinfo=UTC),
    "uuid": UUID(ID),
    "json": {},
    "jsonb": {},
    "_text": ["a"],
    "_uuid": [UUID(ID)],
    "interval": timedelta(seconds=1),
}
JSON_TEXT = (
    "parameters",
    "policy",
    "progress",
    "error",
    "data",
    "filter",
    "body",
    "statistics",
    "report",
    "details",
    "dataset",
    "event",
    "failures",
)


def unread(statement: Statement[Any], columns: Sequence[tuple[str, str]]) -> list[str]:
    """The columns that the decoder never reads, whatever the row contains.

    A statement whose changed rows are only counted has to return one column.
    """
    if statement.decode is len:
        return [name for name, _ in columns[1:]]
    seen: set[int] = set()
    for truth in (True, False):
        values = [
            truth if kind == "bool" else "{}" if kind == "text" and name in JSON_TEXT else LOADED[kind]
            for name, kind in columns
        ]
        row = Watched(values)
        decoded = statement.decode([row])
        if isinstance(decoded, list) and decoded and decoded[0] is row:
            return []
        seen |= row.seen
    return [name for at, (name, kind) in enumerate(columns) if at not in seen and kind != "void"]


@pytest.fixture(scope="module")
def described(server_url: str, template_database: str) -> Iterator[psycopg.Connection]:
    from holdfast.testing.databases import scratch

    with scratch(server_url, template_database) as url, psycopg.connect(url, autocommit=True) as connection:
        yield connection


def test_there_are_statements() -> None:
    assert len(STATEMENTS) > 60
    assert {"ready.claim", "leases.succeed", "leases.settle", "workers.renew", "submissions.insert"} <= set(STATEMENTS)


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_fits_the_schema_and_its_decoder(described: psycopg.Connection, name: str) -> None:
    oids = dict(described.execute("select oid, typname from pg_type").fetchall())
    for statement in variants(name):
        text, names = compiled(statement.sql)
        unknown = set(names) - set(statement.params)
        assert not unknown, f"{name} uses parameters that it does not give: {unknown}"
        adapt = Transformer(described)
        adapt.dump_sequence([statement.params[one] for one in names], [PyFormat.AUTO] * len(names))
        prepared = described.pgconn.prepare(b"", text, adapt.types if names else ())
        assert prepared.status == psycopg.pq.ExecStatus.COMMAND_OK, f"{name}: {prepared.error_message.decode()}"
        result = described.pgconn.describe_prepared(b"")
        untyped = [one for at, one in enumerate(names) if oids.get(result.param_type(at)) in (None, "unknown")]
        assert not untyped, f"{name} leaves open what type these have: {untyped}"
        columns = [((result.fname(at) or b"").decode(), oids[result.ftype(at)]) for at in range(result.nfields)]
        if columns:
            assert unread(statement, columns) == [], f"{name} selects columns that its decoder never reads"
