"""A connection whose statements are sent without waiting, so that one thread can have two in progress."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import count
from select import select
from typing import Any

import psycopg
from psycopg import errors, pq
from psycopg.adapt import PyFormat, Transformer

from holdfast.drivers.drive import drive
from holdfast.sql.statement import Op, Rows, Statement

_PLACEHOLDER = re.compile(r"%\((\w+)\)s|%%")

# Longer than deadlock detection takes, so that a deadlock is still reported as one.
LOCK_TIMEOUT = "15ms"

# The first words of statements that the server has to plan.
PLANNED = (b"select", b"insert", b"update", b"delete", b"with")

Rewrite = Callable[[str], str]


def unchanged(text: str) -> str:
    return text


class Session:
    """One connection of one actor. `rewrite` changes the SQL of each operation, to remove guards."""

    def __init__(self, url: str, rewrite: Rewrite = unchanged) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        self.rewrite = rewrite
        self.pid = self.connection.info.backend_pid
        self.impatient = False
        self._wire = self.connection.pgconn
        self._adapt = Transformer(self.connection)
        self._texts: dict[str, tuple[bytes, list[str]]] = {}
        self._prepared: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        self._to_prepare: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        self._numbers = count()
        # Nothing has to survive a power failure, and planning the same few statements would take most of the time.
        self.execute("set synchronous_commit = off")
        self.execute("set plan_cache_mode = force_generic_plan")

    def close(self) -> None:
        self.connection.close()

    def wait_for_locks(self, patient: bool) -> None:
        """Whether statements wait for locks, or fail with lock_not_available almost at once."""
        if self.impatient is patient:
            self.execute(f"set lock_timeout = '{0 if patient else LOCK_TIMEOUT}'")
            self.impatient = not patient

    def send(self, statement: Statement[Any]) -> None:
        """Send a statement of an operation; its response is fetched with `poll` and `take`."""
        self._send(self.rewrite(statement.sql), statement.params)

    def poll(self, timeout: float) -> bool:
        """Whether the response has arrived, after waiting for at most this many seconds."""
        while self._wire.is_busy():
            if not select([self._wire.socket], [], [], timeout)[0]:
                return False
            self._wire.consume_input()
        return True

    def take(self) -> Rows:
        """Return the rows of the last statement, or raise its database error."""
        self.poll_for_ever()
        result = self._wire.get_result()
        if result is None:
            raise RuntimeError("nothing was sent")
        while self._wire.get_result() is not None:
            self.poll_for_ever()
        if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            raise errors.error_from_result(result)
        if result.status != pq.ExecStatus.TUPLES_OK:
            return ()
        self._adapt.set_pgresult(result)
        return self._adapt.load_rows(0, result.ntuples, tuple)

    def poll_for_ever(self) -> None:
        while not self.poll(1.0):
            pass

    def execute(self, query: str, params: Mapping[str, object] | None = None) -> Rows:
        """Send and wait."""
        self._send(query, params or {})
        return self.take()

    def run(self, op: Op[Any]) -> Any:
        """Drive an operation to its end, each statement by itself."""

        def ask(statement: Statement[Any]) -> Rows:
            self.send(statement)
            return self.take()

        return drive(op, ask)

    def prepare(self) -> None:
        """Prepare what was sent for the first time since the last call. Only while no locks are held: it may wait."""
        for (text, types), name in self._to_prepare.items():
            result = self._wire.prepare(name, text, types)
            if result.status == pq.ExecStatus.COMMAND_OK:
                self._prepared[text, types] = name
        self._to_prepare.clear()

    @property
    def in_transaction(self) -> bool:
        return self._wire.transaction_status != pq.TransactionStatus.IDLE

    def _send(self, query: str, params: Mapping[str, object]) -> None:
        text, names = self._compiled(query)
        buffers = self._adapt.dump_sequence([params[name] for name in names], [PyFormat.AUTO] * len(names))
        types, formats = self._adapt.types or (), self._adapt.formats or []
        if not names:
            types, formats = (), []
        name = self._prepared.get((text, types))
        if name is not None:
            self._wire.send_query_prepared(name, buffers, formats)
        else:
            self._wire.send_query_params(text, buffers, types, formats)
            if text.split(maxsplit=1)[0] in PLANNED and (text, types) not in self._to_prepare:
                self._to_prepare[text, types] = b"s%d" % next(self._numbers)
        while self._wire.flush():
            select([self._wire.socket], [self._wire.socket], [])
            self._wire.consume_input()

    def _compiled(self, query: str) -> tuple[bytes, list[str]]:
        known = self._texts.get(query)
        if known is None:
            known = self._texts[query] = compiled(query)
        return known


def compiled(query: str) -> tuple[bytes, list[str]]:
    """A statement with numbered parameters, as the server expects it, and their names in that order."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        name = found[1]
        if name is None:
            return "%"
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return _PLACEHOLDER.sub(number, query).encode(), names
