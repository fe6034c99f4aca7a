"""Where Holdfast's tables are: one of Django's databases, with what a process needs to use it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections, router, transaction
from psycopg.conninfo import make_conninfo

from holdfast.domain.values import RunRecord
from holdfast.doorbells.bell import Bell
from holdfast.drivers import django as driver
from holdfast.runtime.runtime import Runtime
from holdfast.runtime.settings import Settings, load
from holdfast.sql import ready
from holdfast.sql.statement import Op

APP_LABEL = "holdfast"
# What Django passes to psycopg and libpq does not know.
_NOT_LIBPQ = ("context", "cursor_factory", "prepare_threshold", "row_factory", "autocommit", "isolation_level")


@lru_cache(maxsize=1)
def settings() -> Settings:
    """Holdfast's settings: environment and `holdfast.toml`. The database is Django's, whatever they say."""
    return load()


def chosen_alias(options: Mapping[str, Any]) -> str:
    """The database of a backend: its option DATABASE, else the router's choice for our models."""
    given = options.get("DATABASE")
    if given is not None:
        return str(given)
    try:
        model = apps.get_model(APP_LABEL, "Run")
    except LookupError:
        return str(DEFAULT_DB_ALIAS)
    return str(router.db_for_write(model))


def url_of(alias: str) -> str:
    """How libpq reaches this database."""
    connection = connections[alias]
    if connection.vendor != "postgresql":
        raise ImproperlyConfigured(
            f"Holdfast needs PostgreSQL, but the database {alias!r} in DATABASES is {connection.vendor}"
        )
    given = connection.get_connection_params()
    known = {name: value for name, value in given.items() if name not in _NOT_LIBPQ and value is not None}
    role = connection.settings_dict["OPTIONS"].get("assume_role")
    if role:
        known["options"] = f"{known.get('options', '')} -c role={role}".strip()
    return str(make_conninfo(**known))


def run(alias: str, op: Op[Any]) -> Any:
    """Run an operation on Django's connection, in the current transaction of this thread."""
    return driver.run(connections[alias], op)


class Surroundings:
    """What one process has for one database: Holdfast's runtime, and a bell that wakes workers."""

    def __init__(self, alias: str) -> None:
        self.runtime = Runtime(replace(settings(), database_url=url_of(alias)), check=False)
        self.bell: Bell = self.runtime.open_bell(partial(_notify, alias), waiting=False)


_opened: dict[tuple[int, str, str], Surroundings] = {}


def surroundings_of(alias: str) -> Surroundings:
    """Opened once per process and database; a fork opens its own."""
    name = str(connections[alias].settings_dict["NAME"])
    key = (os.getpid(), alias, name)
    found = _opened.get(key)
    if found is None:
        found = _opened[key] = Surroundings(alias)
    return found


def rides(alias: str, queue: str) -> bool:
    """Whether the statement that makes a run is to wake the workers itself. In a transaction it never does."""
    connection = connections[alias]
    alone = not connection.in_atomic_block and connection.get_autocommit()
    return alone and surroundings_of(alias).bell.rides(queue)


def ring(alias: str, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
    """Wake workers once the current transaction has been committed; at once if there is none."""
    bell, hints, runs = surroundings_of(alias).bell, list(hints), list(runs)
    after_commit(alias, partial(bell.ring, hints, runs))


def after_commit(alias: str, then: Callable[[], object]) -> None:
    """Call this once the current transaction has been committed; not at all if its end is up to the caller alone."""
    connection = connections[alias]
    if connection.in_atomic_block or connection.get_autocommit():
        transaction.on_commit(then, using=alias, robust=True)


def _notify(alias: str, hints: Iterable[str]) -> None:
    """Send hints through Postgres. A thread that has no connection of its own closes the one that it opens for this."""
    connection = connections[alias]
    borrowed = connection.connection is not None
    try:
        driver.run(connection, iter(ready.ring(list(hints))))
    finally:
        if not borrowed:
            with suppress(Exception):
                connection.close()
