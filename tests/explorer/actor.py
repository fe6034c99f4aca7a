"""An actor: a program on a connection, advanced one step at a time, exactly as `drivers.psycopg.transact` would."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import psycopg

from holdfast.domain.errors import HoldfastError
from holdfast.drivers.psycopg import TRANSIENT, TRIES
from holdfast.sql.statement import Op, Statement
from tests.explorer.wire import Session

DIES, UNANSWERED, DROPPED = "!", "?", "/"


@dataclass(frozen=True, slots=True)
class Do:
    """One operation of a program. With `begin`, all its statements share a transaction."""

    make_op: Callable[[], Op[Any]]
    begin: bool = False


Program = Generator[Do, Any, Any]


@dataclass(slots=True)
class Answer:
    """What an actor's caller received: a value, an error, or nothing if it died. `doubted` if it was retried."""

    value: Any = None
    error: Exception | None = None
    received: bool = False
    doubted: bool = False


class Actor:
    """Takes steps until its program has ended. After a lost response it continues with `recover`."""

    def __init__(self, name: str, session: Session, program: Program, recover: Callable[[], Program] | None) -> None:
        self.name = name
        self.answer = Answer()
        self.finished = False
        self.waiting = False  # a statement is in progress
        self.resting = False  # it lost a deadlock and lets others go first, like the pause in production
        self.refused = False  # it rests after a lock timeout, until another transaction has ended
        self.waited = False  # at some time, for a lock that the other actor held
        self.steps = 0
        self.transients = 0
        self.deadlocked = False
        self.refusals = 0
        self._session = session
        self._program = program
        self._recover = recover
        self._do: Do | None = None
        self._op: Op[Any] | None = None
        self._statement: Statement[Any] | None = None
        self._outcome: Any = None
        self._failure: Exception | None = None
        self._tries = TRIES
        self._crash: str | None = None
        self._next_do(None)

    # Possible next steps.

    @property
    def in_transaction(self) -> bool:
        return self._session.in_transaction

    @property
    def impatient(self) -> bool:
        """Whether its statements fail rather than wait for a lock."""
        return self._session.impatient

    @property
    def can_recover(self) -> bool:
        return self._recover is not None

    def rest_over(self, moved: Actor) -> None:
        """Another actor has taken a step: continue after a pause, or once the refused lock may be free."""
        if not (self.refused and moved.in_transaction):
            self.resting = self.refused = False

    def ends_transaction(self) -> bool:
        """Whether the next step makes something visible: a COMMIT, or a statement that commits by itself."""
        if self._statement is None:
            return True
        return not self.in_transaction and not self._begins(self._statement)

    # Steps.

    def step(self, crash: str | None = None) -> None:
        """Send the next statement, or COMMIT. `settle` returns whether it is done."""
        self._crash = crash
        if crash == DIES:
            self._die()
            return
        self.steps += 1
        if self._statement is None:
            self._session.execute("rollback" if self._failure else "commit")
            if crash:
                self._ask_again()
            else:
                self._deliver()
            return
        if not self.in_transaction and self._begins(self._statement):
            self._session.execute("begin")
        self._session.send(self._statement)
        self.waiting = True

    def poll(self, timeout: float) -> bool:
        """Whether the current statement is done; if so, its response has been processed."""
        if self.waiting and self._session.poll(timeout):
            self.waiting = False
            self._receive()
        return not self.waiting

    @property
    def pid(self) -> int:
        return self._session.pid

    def _receive(self) -> None:
        try:
            rows = self._session.take()
        except TRANSIENT as error:
            self.transients += 1
            self.deadlocked = self.deadlocked or isinstance(error, psycopg.errors.DeadlockDetected)
            self._session.execute("rollback")
            refused = isinstance(error, psycopg.errors.LockNotAvailable)
            self.refusals += refused
            self._tries -= not refused
            if self._crash:
                self._ask_again()
            elif self._tries:
                self.resting, self.refused = True, refused
                self._begin_op()
            else:
                self._end(error=RuntimeError("gave up after too many deadlocks"))
            return
        except psycopg.Error as error:
            self._end(error=error)
            return
        if self._crash:
            self._ask_again()
        else:
            self._resume(lambda op: op.send(rows))

    # The program.

    def _begins(self, statement: Statement[Any]) -> bool:
        return statement.together or (self._do is not None and self._do.begin)

    def _next_do(self, value: Any, error: Exception | None = None) -> None:
        try:
            self._do = self._program.throw(error) if error else self._program.send(value)
        except StopIteration as done:
            self._end(value=done.value)
            return
        except HoldfastError as error:
            self._end(error=error)
            return
        self._tries = TRIES
        self._begin_op()

    def _begin_op(self) -> None:
        if self._do is None:
            raise RuntimeError("no operation")
        self._op = self._do.make_op()
        self._resume(next)

    def _resume(self, how: Callable[[Op[Any]], Statement[Any]]) -> None:
        if self._op is None:
            raise RuntimeError("no operation")
        self._outcome = self._failure = None
        try:
            self._statement = how(self._op)
            return
        except StopIteration as done:
            self._statement, self._outcome = None, done.value
        except HoldfastError as error:
            self._statement, self._failure = None, error
        if not self.in_transaction:
            self._deliver()

    def _deliver(self) -> None:
        self._next_do(self._outcome, self._failure)

    def _end(self, value: Any = None, error: Exception | None = None) -> None:
        if self.in_transaction:
            self._session.execute("rollback")
        self.answer.value = value
        self.answer.error = error
        self.answer.received = True
        self.finished = True

    # Crashes.

    def _die(self) -> None:
        self._abandon()
        self.finished = True

    def _ask_again(self) -> None:
        """The connection is gone, and whatever was open is rolled back; the caller does not know what happened."""
        self._abandon()
        self.answer.doubted = True
        if self._recover is None:
            self.finished = True
            return
        self._program = self._recover()
        self._next_do(None)

    def _abandon(self) -> None:
        self._program.close()
        if self._op is not None:
            self._op.close()
        # The server rolls back what a lost client leaves behind; an explicit rollback is faster than reconnecting.
        if self.in_transaction:
            self._session.execute("rollback")
