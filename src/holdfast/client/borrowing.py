"""What `on()` accepts: a connection of the caller, and the calls that are allowed in the caller's transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import psycopg

from holdfast.domain.errors import BadInput, ConfigurationError
from holdfast.drivers import psycopg as psycopg_driver
from holdfast.drivers import psycopg_async as async_driver
from holdfast.sql.statement import Op
from holdfast.verbs.verb import Verb


def check_offered(verb: Verb[..., Any]) -> None:
    """Raise BadInput for a call that is not allowed in the caller's transaction."""
    if verb.refused_in_transaction is not None:
        raise BadInput(
            f"{verb.name} cannot be called in your transaction: {verb.refused_in_transaction}; "
            "call it on the client itself"
        )


def driver_for(connection: Any) -> Callable[[Any, Op[Any]], Any]:
    """Return the driver for the caller's connection. Raise ConfigurationError if there is none."""
    if isinstance(connection, psycopg.Connection):
        return psycopg_driver.run
    if _is_sqlalchemy(connection) and not _is_awaited(connection):
        from holdfast.drivers import sqlalchemy

        if isinstance(connection, sqlalchemy.BORROWED):
            return sqlalchemy.run
    if _is_django(connection):
        from holdfast.drivers import django

        return django.run
    raise ConfigurationError(
        "Client.on() accepts a psycopg, SQLAlchemy or Django connection, or a SQLAlchemy session, not "
        + _described(connection, "; use an AsyncClient for that" if _is_awaited(connection) else "")
    )


def async_driver_for(connection: Any) -> Callable[[Any, Op[Any]], Awaitable[Any]]:
    """The same for asynchronous connections. Django has none: its transactions belong to a thread."""
    if isinstance(connection, psycopg.AsyncConnection):
        return async_driver.run
    if _is_sqlalchemy(connection) and _is_awaited(connection):
        from holdfast.drivers import sqlalchemy

        return sqlalchemy.run_async
    blocking = isinstance(connection, psycopg.Connection) or (
        _is_sqlalchemy(connection) and not _is_of(connection, "sqlalchemy.ext.asyncio")
    )
    advice = "; use a Client for a blocking connection" if blocking else ""
    if _is_django(connection):
        advice = (
            "; Django's transactions belong to a thread: use a Client in the function that has the transaction, "
            "called with sync_to_async"
        )
    raise ConfigurationError(
        "AsyncClient.on() accepts an asynchronous psycopg connection, or SQLAlchemy's AsyncConnection or "
        f"AsyncSession, not {_described(connection, advice)}"
    )


def _is_sqlalchemy(connection: object) -> bool:
    """Whether it is SQLAlchemy's, or derives from SQLAlchemy, as SQLModel's sessions do. Does not import it."""
    return _is_of(connection, "sqlalchemy")


def _is_django(connection: object) -> bool:
    """Whether it is one of `django.db.connections`, or `django.db.connection`, a proxy for the default one."""
    return _is_of(connection, "django") and hasattr(connection, "in_atomic_block")


def _is_awaited(connection: object) -> bool:
    if isinstance(connection, psycopg.AsyncConnection):
        return True
    # Engines and session factories have no transaction to join.
    joined = hasattr(connection, "run_sync") or hasattr(connection, "registry")
    return joined and _is_of(connection, "sqlalchemy.ext.asyncio")


def _is_of(connection: object, package: str) -> bool:
    return any(cls.__module__.startswith(f"{package}.") for cls in type(connection).__mro__)


def _described(connection: object, advice: str) -> str:
    return f"{type(connection).__module__}.{type(connection).__qualname__}{advice}"
