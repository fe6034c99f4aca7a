"""The drivers under test, each behind the same three verbs: perform, borrow, close."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import psycopg
import sqlalchemy
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast.drivers import psycopg as psycopg_driver
from holdfast.drivers import psycopg_async as async_driver
from holdfast.drivers import sqlalchemy as sqlalchemy_driver
from holdfast.drivers.psycopg import OwnConnection
from holdfast.drivers.psycopg_async import AsyncOwnConnection
from holdfast.drivers.sessions import CLIENT
from holdfast.sql.statement import Op

T = TypeVar("T")

Run = Callable[[Op[Any]], Any]


class RolledBack(Exception):
    """Raised by tests inside a borrowed transaction to undo it."""


class Driver(ABC):
    def __init__(self, url: str) -> None:
        self.url = url

    @abstractmethod
    def perform(self, make_op: Callable[[], Op[T]]) -> T:
        """Run an operation in its own transaction."""

    @abstractmethod
    def borrow(self) -> AbstractContextManager[Run]:
        """A caller's transaction: operations run in it take effect if and only if it commits."""

    @abstractmethod
    def close(self) -> None: ...

    @property
    def in_transaction(self) -> bool:
        """Whether it left a transaction open. Pools of SQLAlchemy end those of returned connections."""
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Psycopg(Driver):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._connection = self._connect()

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, autocommit=True)

    def perform(self, make_op: Callable[[], Op[T]]) -> T:
        return psycopg_driver.transact(self._connection, make_op)

    @contextmanager
    def borrow(self) -> Iterator[Run]:
        with self._connection.transaction():
            yield lambda op: psycopg_driver.run(self._connection, op)

    def close(self) -> None:
        self._connection.close()

    @property
    def in_transaction(self) -> bool:
        return self._connection.info.transaction_status != TransactionStatus.IDLE


class PsycopgAsync(Driver):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._runner = asyncio.Runner()
        self._connection = self._wait(self._connect())

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        return await psycopg.AsyncConnection.connect(self.url, autocommit=True)

    def _wait(self, coroutine: Any) -> Any:
        return self._runner.run(coroutine)

    def perform(self, make_op: Callable[[], Op[T]]) -> T:
        done: T = self._wait(async_driver.transact(self._connection, make_op))
        return done

    @contextmanager
    def borrow(self) -> Iterator[Run]:
        transaction = self._connection.transaction()
        self._wait(transaction.__aenter__())
        try:
            yield lambda op: self._wait(async_driver.run(self._connection, op))
        except BaseException as error:
            if not self._wait(transaction.__aexit__(type(error), error, None)):
                raise
        else:
            self._wait(transaction.__aexit__(None, None, None))

    def close(self) -> None:
        self._wait(self._connection.close())
        self._runner.close()

    @property
    def in_transaction(self) -> bool:
        return self._connection.info.transaction_status != TransactionStatus.IDLE


class Pooled(Psycopg):
    """A Holdfast connection behind a pooler in transaction mode."""

    def _connect(self) -> psycopg.Connection[Any]:
        return OwnConnection.connect(self.url, session=CLIENT)


class PooledAsync(PsycopgAsync):
    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        return await AsyncOwnConnection.connect(self.url, session=CLIENT)


class SQLAlchemyConnection(Driver):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url))

    def perform(self, make_op: Callable[[], Op[T]]) -> T:
        with self.engine.begin() as connection:
            return sqlalchemy_driver.run(connection, make_op())

    @contextmanager
    def borrow(self) -> Iterator[Run]:
        with self.engine.begin() as connection:
            yield lambda op: sqlalchemy_driver.run(connection, op)

    def close(self) -> None:
        self.engine.dispose()


class SQLAlchemySession(SQLAlchemyConnection):
    def perform(self, make_op: Callable[[], Op[T]]) -> T:
        with Session(self.engine) as session, session.begin():
            return sqlalchemy_driver.run(session, make_op())

    @contextmanager
    def borrow(self) -> Iterator[Run]:
        with Session(self.engine) as session, session.begin():
            yield lambda op: sqlalchemy_driver.run(session, op)


def asyncpg_arguments(url: str) -> dict[str, Any]:
    """Return the arguments of asyncpg.connect() for a libpq URL."""
    known = conninfo_to_dict(url)
    names = {"host": "host", "port": "port", "user": "user", "password": "password", "dbname": "database"}
    return {theirs: known[ours] for ours, theirs in names.items() if ours in known}


def async_engine(url: str, driver: str, **options: Any) -> AsyncEngine:
    """A SQLAlchemy engine that uses psycopg or asyncpg."""
    arguments = asyncpg_arguments(url) if driver == "asyncpg" else conninfo_to_dict(url)
    options = {"poolclass": sqlalchemy.pool.NullPool, "connect_args": arguments} | options
    return create_async_engine(f"postgresql+{driver}://", **options)


class SQLAlchemyAsyncConnection(Driver):
    database_driver = "asyncpg"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._runner = asyncio.Runner()
        # With asyncpg, connecting takes longer than all statements of a test.
        self.engine = async_engine(url, self.database_driver, poolclass=sqlalchemy.pool.AsyncAdaptedQueuePool)

    def begin(self) -> Any:
        return self.engine.begin()

    def perform(self, make_op: Callable[[], Op[T]]) -> T:
        with self.borrow() as run:
            done: T = run(make_op())
        return done

    @contextmanager
    def borrow(self) -> Iterator[Run]:
        transaction = self.begin()
        connection = self._runner.run(transaction.__aenter__())
        try:
            yield lambda op: self._runner.run(sqlalchemy_driver.run_async(connection, op))
        except BaseException as error:
            self._runner.run(transaction.__aexit__(type(error), error, None))
            raise
        else:
            self._runner.run(transaction.__aexit__(None, None, None))

    def close(self) -> None:
        self._runner.run(self.engine.dispose())
        self._runner.close()


class SQLAlchemyAsyncSession(SQLAlchemyAsyncConnection):
    """Uses a session, and psycopg."""

    database_driver = "psycopg"

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncSession]:
        async with AsyncSession(self.engine) as session, session.begin():
            yield session


# To test a driver for another kind of connection, add it here.
DRIVERS: dict[str, Callable[[str], Driver]] = {
    "psycopg": Psycopg,
    "psycopg_async": PsycopgAsync,
    "sqlalchemy_connection": SQLAlchemyConnection,
    "sqlalchemy_session": SQLAlchemySession,
    "sqlalchemy_asyncpg": SQLAlchemyAsyncConnection,
    "sqlalchemy_async_session": SQLAlchemyAsyncSession,
    "pooled": Pooled,
    "pooled_async": PooledAsync,
}
POOLED = ("pooled", "pooled_async")
# These two run every test. Operations are the same generators on every driver; drivers differ only in how they bind a
# statement's parameters and return its rows, where a transaction begins and ends, and how errors are raised. The tests
# marked `every_driver` check that on the others: together they execute every statement that any test here executes,
# commit and roll back a caller's transaction, and raise errors of operations and of the server.
EVERY_TEST = ("psycopg", "psycopg_async")
# Only callers use these. Read-only calls are tested in test_client_async_sqlalchemy.py, with all other calls.
ONLY_BORROWED = {
    "sqlalchemy_asyncpg": (
        "test_submit",
        "test_keys",
        "test_dedupe",
        "test_cancel",
        "test_retry",
        "test_list",
    ),
    "sqlalchemy_async_session": ("test_submit",),
}


def drivers_for(module: str, *, every_driver: bool) -> list[str]:
    """The drivers that run a test of this module."""
    return [
        name
        for name in DRIVERS
        if (every_driver or name in EVERY_TEST) and module in ONLY_BORROWED.get(name, (module,))
    ]
