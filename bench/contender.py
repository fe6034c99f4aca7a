"""What every contender can be asked: an empty store, clients, workers, and how far its store says it is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from bench import outfit
from bench.board import SLOTS, VARIABLE, Board
from bench.processes import Asker, Crew, asking, running


class Lab(NamedTuple):
    """Where the experiments happen. The names of the databases that they create begin with `prefix`."""

    board: Board
    board_path: Path
    postgres: str
    redis: str | None
    scratch: Path
    prefix: str = "bench"

    def database(self, name: str) -> str:
        return urlsplit(self.postgres)._replace(path=f"/{name}").geturl()

    def admin(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.postgres, autocommit=True)

    def environment(self, **more: str) -> dict[str, str]:
        shared = {
            VARIABLE: str(self.board_path),
            "BENCH_SLOTS": str(SLOTS),
            "BENCH_NODE": str(outfit.NODE),
            "BENCH_REDIS": self.redis or "",
        }
        return outfit.environment(**shared, **more)


class Contender:
    """One system in one configuration. `missing` says why it cannot take part."""

    name: ClassVar[str]
    config: str
    versions: dict[str, str]
    missing: str | None = None

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def fresh(self) -> None:
        """Start from an empty store."""
        raise TypeError("each contender has its own store")

    def client_command(self) -> list[str]:
        raise TypeError("each contender has its own client")

    def worker_commands(self, workers: int) -> list[list[str]]:
        raise TypeError("each contender has its own workers")

    def environment(self) -> dict[str, str]:
        return self.lab.environment()

    def unfinished(self, total: int) -> bool:
        """Whether the store still holds something of `total` runs that has not ended."""
        raise TypeError("each contender has its own store")

    def backends(self) -> list[int]:
        """The server's processes that work for this contender, where they can be distinguished."""
        return []

    def verify(self, total: int) -> None:
        """Raise unless the store holds what it promises to hold."""

    def close(self) -> None:
        """Let go of connections."""

    def client(self) -> contextlib.AbstractContextManager[Asker]:
        log = self.lab.scratch / "logs" / f"{self.name}-client.log"
        return asking(Asker(self.client_command(), self.environment(), log))

    def workers(self, workers: int = 1) -> contextlib.AbstractContextManager[Crew]:
        log = self.lab.scratch / "logs" / f"{self.name}-worker.log"
        return running(Crew(self.worker_commands(workers), self.environment(), log))

    def submit(self, what: str, count: int, first: int = 0, **more: Any) -> float:
        """Submit through a client of one's own; returns the seconds it took, its start-up left out."""
        with self.client() as client:
            return client.ask(what, first, count, **more)


class PostgresContender(Contender):
    """One with a database of its own, cloned from a template in which its schema was made once."""

    _connection: psycopg.Connection[Any] | None = None
    _made: ClassVar[set[tuple[str, str]]] = set()

    @property
    def database(self) -> str:
        return f"{self.lab.prefix}_{self.name}".replace("-", "_")

    @property
    def url(self) -> str:
        return self.lab.database(self.database)

    def make_schema(self, url: str) -> None:
        raise TypeError("each contender has its own schema")

    def fresh(self) -> None:
        self.close()
        template = f"{self.database}_template"
        with self.lab.admin() as admin:
            if (self.lab.postgres, template) not in self._made:
                _recreate(admin, template)
                self.make_schema(self.lab.database(template))
                self._made.add((self.lab.postgres, template))
            _recreate(admin, self.database, template)

    def drop(self) -> None:
        self.close()
        with self.lab.admin() as admin:
            admin.execute(_drop(self.database))

    def sql(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        if self._connection is None:
            self._connection = psycopg.connect(self.url, autocommit=True)
        cursor = self._connection.execute(query, values or None)
        return cursor.fetchall() if cursor.description else []

    def backends(self) -> list[int]:
        asked = "select pid from pg_stat_activity where datname = %s and pid <> pg_backend_pid()"
        return [int(row[0]) for row in self.sql(asked, self.database)]

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextlib.contextmanager
    def held_snapshot(self) -> Iterator[None]:
        """Another session sits in a REPEATABLE READ transaction: what it may still see cannot be vacuumed."""
        with psycopg.connect(self.url) as other:
            other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            other.execute("select count(*) from pg_class")
            yield
            other.rollback()


def _drop(name: str) -> sql.Composed:
    return sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name))


def _recreate(admin: psycopg.Connection[Any], name: str, template: str = "template0") -> None:
    admin.execute(_drop(name))
    create = sql.SQL("create database {} template {}")
    admin.execute(create.format(sql.Identifier(name), sql.Identifier(template)))
