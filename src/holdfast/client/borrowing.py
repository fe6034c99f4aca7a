"""What `on()` accepts: a connection of the caller, and the calls that are allowed in the caller's transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import psycopg

from holdfast import ops
from holdfast.client import calls
from holdfast.client import subscriptions as subscribing
from holdfast.domain.errors import BadInput, ConfigurationError
from holdfast.drivers import psycopg as psycopg_driver
from holdfast.drivers import psycopg_async as async_driver
from holdfast.sql.statement import Op

_WORKER = "an open transaction that locks a worker's row prevents the worker from renewing its leases"
_SUBSCRIPTION = "deliveries depend on committed data and would wait for your transaction"
_UNSEEN = "the secret would be returned before it is committed, and a rollback would make it invalid"

_REFUSED: dict[Callable[..., Any], tuple[str, str]] = {
    calls.drain_worker: ("drain_worker", _WORKER),
    ops.register_worker: ("register_worker", _WORKER),
    ops.heartbeat: ("worker_heartbeat", _WORKER),
    ops.deregister_worker: ("deregister_worker", _WORKER),
    subscribing.add_subscription: ("add_subscription", _UNSEEN),
    subscribing.rotate_secret: ("rotate_secret", _UNSEEN),
    subscribing.remove_subscription: ("remove_subscription", _SUBSCRIPTION),
    subscribing.pause_subscription: ("pause_subscription", _SUBSCRIPTION),
    subscribing.resume_subscription: ("resume_subscription", _SUBSCRIPTION),
    subscribing.redeliver: ("redeliver", _SUBSCRIPTION),
}


def check_offered(make_op: object) -> None:
    """Raise BadInput for a call that is not allowed in the caller's transaction."""
    refused = _REFUSED.get(make_op.func) if isinstance(make_op, partial) else None
    if refused is not None:
        name, why = refused
        raise BadInput(f"{name} cannot be called in your transaction: {why}; call it on the client itself")


def driver_for(connection: Any) -> Callable[[Any, Op[Any]], Any]:
    """Return the driver for the caller's connection. Raise ConfigurationError if there is none."""
    if isinstance(connection, psycopg.Connection):
        return psycopg_driver.run
    if _is_sqlalchemy(connection) and not _is_awaited(connection):
        from holdfast.drivers import sqlalchemy

        if isinstance(connection, sqlalchemy.BORROWED):
            return sqlalchemy.run
    raise ConfigurationError(
        "Client.on() accepts a psycopg connection, or a SQLAlchemy connection or session, not "
        + _described(connection, "; use an AsyncClient for that" if _is_awaited(connection) else "")
    )


def async_driver_for(connection: Any) -> Callable[[Any, Op[Any]], Awaitable[Any]]:
    """The same for connections whose statements are awaited."""
    if isinstance(connection, psycopg.AsyncConnection):
        return async_driver.run
    if _is_sqlalchemy(connection) and _is_awaited(connection):
        from holdfast.drivers import sqlalchemy

        return sqlalchemy.run_async
    blocking = isinstance(connection, psycopg.Connection) or (
        _is_sqlalchemy(connection) and not _is_of(connection, "sqlalchemy.ext.asyncio")
    )
    raise ConfigurationError(
        "AsyncClient.on() accepts an asynchronous psycopg connection, or SQLAlchemy's AsyncConnection or "
        f"AsyncSession, not {_described(connection, '; use a Client for a blocking connection' if blocking else '')}"
    )


def _is_sqlalchemy(connection: object) -> bool:
    """Whether it is SQLAlchemy's, or derives from SQLAlchemy, as SQLModel's sessions do. Does not import it."""
    return _is_of(connection, "sqlalchemy")


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
