"""The Django database with Holdfast's tables, and what a process needs to use it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections, router, transaction

from holdfast.domain.values import RunRecord
from holdfast.doorbells.bell import Bell, CoalescingBell
from holdfast.drivers import django as driver
from holdfast.runtime.runtime import Runtime
from holdfast.runtime.settings import Settings, load
from holdfast.sql import ready
from holdfast.sql.statement import Op

APP_LABEL = "holdfast"
# How long a hint waits for a statement that can send it. Otherwise it needs a connection, so a burst of runs sends one.
LAST_HINT = 0.03
# Parameters that Django passes to psycopg and that libpq does not know.
_NOT_LIBPQ = ("context", "cursor_factory", "prepare_threshold", "row_factory", "autocommit", "isolation_level")


@lru_cache(maxsize=1)
def settings() -> Settings:
    """Holdfast's settings: environment and `holdfast.toml`. The database is always Django's."""
    return load()


def chosen_alias(options: Mapping[str, Any]) -> str:
    """The database of a backend: its option DATABASE, or else the router's choice for our models."""
    given = options.get("DATABASE")
    if given is not None:
        return str(given)
    try:
        model = apps.get_model(APP_LABEL, "Run")
    except LookupError:
        return str(DEFAULT_DB_ALIAS)
    return str(router.db_for_write(model))


def url_of(alias: str) -> str:
    """The URL by which libpq can connect to this database."""
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
    return as_url(known)


def as_url(given: Mapping[str, Any]) -> str:
    """Return libpq's parameters as a URL, whose password can be masked in logs."""
    names = ("user", "password", "host", "port", "dbname")
    user, password, host, port, name = (quote(str(given.get(key, "")), safe="") for key in names)
    account = f"{user}:{password}" if password else user
    others = urlencode({key: value for key, value in given.items() if key not in names}, quote_via=quote)
    return f"postgresql://{account}@{host}{':' if port else ''}{port}/{name}?{others}"


def run(alias: str, op: Op[Any]) -> Any:
    """Run an operation on Django's connection, in the current transaction of this thread."""
    return driver.run(connections[alias], op, prepare=settings().pooler in ("auto", "off"))


class Links(NamedTuple):
    """What a process has opened for one database: Holdfast's runtime, and the bell that wakes workers."""

    runtime: Runtime
    bell: Bell


_opened: dict[tuple[int, str, str], Links] = {}


def links(alias: str) -> Links:
    """Return this process's links to a database, opening them on first use, and again after a fork."""
    key = (os.getpid(), alias, str(connections[alias].settings_dict["NAME"]))
    return _opened.get(key) or _opened.setdefault(key, _open(alias))


def _open(alias: str) -> Links:
    runtime = Runtime(replace(settings(), database_url=url_of(alias)), check=False)
    notify = partial(_notify, alias)
    if settings().doorbell in ("auto", "listen"):
        return Links(runtime, CoalescingBell(notify, inline=True, pause=LAST_HINT))
    return Links(runtime, runtime.open_bell(notify, waiting=False))


def may_send_inline(alias: str, queue: str) -> bool:
    """Whether the statement that creates a run should itself wake workers; never in a transaction."""
    connection = connections[alias]
    alone = not connection.in_atomic_block and connection.get_autocommit()
    return alone and links(alias).bell.may_send_inline(queue)


def ring(alias: str, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
    """Wake workers once the current transaction has been committed; at once if there is none."""
    bell, hints, runs = links(alias).bell, list(hints), list(runs)
    if not after_commit(alias, partial(bell.ring, hints, runs)):
        bell.ring_later(hints, runs)


def after_commit(alias: str, then: Callable[[], object]) -> bool:
    """Call this once the current transaction has been committed.

    Return False, and never call it, if Django does not manage the transaction and so cannot know when that is.
    """
    connection = connections[alias]
    if not connection.in_atomic_block and not connection.get_autocommit():
        return False
    transaction.on_commit(then, using=alias, robust=True)
    return True


def _notify(alias: str, hints: Iterable[str]) -> None:
    """Send hints through Postgres. If this thread had no connection, the one opened for this is closed again."""
    connection = connections[alias]
    borrowed = connection.connection is not None
    try:
        driver.run(connection, iter(ready.ring(list(hints))))
    finally:
        if not borrowed:
            with suppress(Exception):
                connection.close()
