"""Mutations: a guard is removed, to check that its absence is detected. Only the code that tests run is changed.

A mutation replaces a text: in the SQL of statements sent to the database, in the migrations that create a database, or
in the source of a module, which is then executed again in its place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeVar

import psycopg

from holdfast.schema.alembic_run import run
from holdfast.schema.migrate import migrations
from holdfast.sql.statement import Op, Rows, Statement

T = TypeVar("T")

SQL, SCHEMA = "sql", "schema"


class DoesNotApply(AssertionError):
    """The text that a mutation replaces does not exist: the code has changed, and the mutation must be updated."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One guard removed. `where` is `sql`, `schema` or the name of a module; `within` selects the statements."""

    name: str
    guard: str
    where: str
    old: str
    new: str
    within: str = ""


class Rewriting:
    """Rewrites statements, and counts how many it changed."""

    def __init__(self, mutation: Mutation) -> None:
        self._mutation = mutation
        self.changed = 0

    def __call__(self, sql: str) -> str:
        if self._mutation.within not in sql or self._mutation.old not in sql:
            return sql
        self.changed += 1
        return sql.replace(self._mutation.old, self._mutation.new)


def rewritten(make_op: Callable[[], Op[T]], rewrite: Callable[[str], str]) -> Callable[[], Op[T]]:
    """The same operation with its statements rewritten, for any driver."""

    def op() -> Generator[Statement[Any], Rows, T]:
        inner = make_op()
        resume: Callable[[], Statement[Any]] = lambda: next(inner)  # noqa: E731
        while True:
            try:
                statement = resume()
            except StopIteration as done:
                result: T = done.value
                return result
            try:
                rows = yield replace(statement, sql=rewrite(statement.sql))
            except Exception as error:  # noqa: BLE001 - handed on to where it belongs
                resume = _throwing(inner, error)
            else:
                resume = _sending(inner, rows)

    return op


def _throwing(inner: Op[Any], error: Exception) -> Callable[[], Statement[Any]]:
    return lambda: inner.throw(error)


def _sending(inner: Op[Any], rows: Rows) -> Callable[[], Statement[Any]]:
    return lambda: inner.send(rows)


def migrate(url: str, mutation: Mutation) -> None:
    """Create the schema without the guard."""
    texts = [migration.sql for migration in migrations()]
    # A later migration may replace what an earlier one created, with the same guard.
    if not any(mutation.old in text for text in texts):
        raise DoesNotApply(f"{mutation.name}: no migration has\n{mutation.old}")
    run(url, [m._replace(sql=m.sql.replace(mutation.old, mutation.new)) for m in migrations()])
    # With the recorded hashes, the code would reject the database before any guard is tested.
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("update holdfast.migration set sha256 = null")


@contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    """Execute a module's changed source in its place, for all modules that have imported from it."""
    module = import_module(mutation.where)
    source = Path(module.__file__ or "").read_text("utf-8")
    if source.count(mutation.old) != 1:
        raise DoesNotApply(f"{mutation.name}: {mutation.where} must have this once:\n{mutation.old}")
    undo = _replaced(module, source.replace(mutation.old, mutation.new))
    try:
        yield
    finally:
        undo()


def _replaced(module: ModuleType, source: str) -> Callable[[], None]:
    changed = ModuleType(module.__name__)
    changed.__file__ = module.__file__
    # Dataclasses look up their module while they are created.
    sys.modules[module.__name__] = changed
    try:
        exec(compile(source, module.__file__ or "", "exec"), changed.__dict__)
    finally:
        sys.modules[module.__name__] = module
    # The class objects are kept, because other modules hold instances of them; they get the changed methods.
    classes = {name: old for name, old in vars(module).items() if isinstance(old, type)}
    methods = [
        (old, name, vars(old)[name], value)
        for title, old in classes.items()
        if old.__module__ == module.__name__
        for name, value in vars(vars(changed)[title]).items()
        if isinstance(value, FunctionType | property) and not name.startswith("__")
    ]
    vars(changed).update(classes)
    for owner, name, _, method in methods:
        setattr(owner, name, method)
    new = {
        id(old): vars(changed)[name]
        for name, old in vars(module).items()
        if callable(old) and not isinstance(old, type) and getattr(old, "__module__", None) == module.__name__
    }
    swapped: list[tuple[ModuleType, str, Any]] = []
    for other in [m for name, m in sys.modules.items() if name.startswith(("holdfast.", "tests.")) and m is not None]:
        for name, value in list(vars(other).items()):
            if id(value) in new and callable(value):
                swapped.append((other, name, value))
                setattr(other, name, new[id(value)])

    def undo() -> None:
        for owner, name, method, _ in methods:
            setattr(owner, name, method)
        for other, name, value in swapped:
            setattr(other, name, value)

    return undo
