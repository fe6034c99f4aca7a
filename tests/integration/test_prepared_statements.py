"""Statements that a connection executes by name, without a cursor: the same rows and errors, with less work."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from socket import SHUT_RDWR, socket
from threading import Thread
from time import monotonic
from typing import Any

import psycopg
import pytest

from holdfast.drivers import psycopg as driver
from holdfast.drivers import psycopg_async, sessions
from holdfast.drivers.prepared import USES
from holdfast.drivers.psycopg import OwnConnection
from holdfast.drivers.psycopg_async import AsyncOwnConnection
from holdfast.sql.statement import Statement, rows

VALUES = [
    {"text": "plain", "number": 1, "flag": True, "share": 0.5},
    {"text": None, "number": None, "flag": None, "share": None},
    {"text": 'it\'s \\ "odd" ü 🚀', "number": -(2**40), "flag": False, "share": float("inf")},
    {"text": "", "number": 2**62, "flag": True, "share": -1e-300},
]
ECHO = "select %(text)s::text, %(number)s::bigint, %(flag)s::boolean, %(share)s::float8, '100 %%', %(text)s::text"


@pytest.fixture
def connection(database_url: str) -> Iterator[OwnConnection]:
    with OwnConnection.connect(database_url, session=sessions.CLIENT) as opened:
        yield opened


def ask(connection: OwnConnection, sql: Any, **params: object) -> Any:
    return driver.transact(connection, lambda: iter(Statement(sql, params, rows)))


def prepared(connection: OwnConnection) -> list[str]:
    found = connection.execute(
        "select statement from pg_prepared_statements where name like 'holdfast%'", prepare=False
    )
    return [row[0] for row in found]


def test_a_statement_that_is_executed_often_is_prepared_and_answers_as_before(connection: OwnConnection) -> None:
    for _ in range(USES):
        answers = [ask(connection, ECHO, **values) for values in VALUES]
        assert answers == [[(*values.values(), "100 %", values["text"])] for values in VALUES]
    assert len(prepared(connection)) == 1


async def test_an_asynchronous_connection_does_the_same(database_url: str) -> None:
    async with await AsyncOwnConnection.connect(database_url, session=sessions.CLIENT) as connection:
        for values in VALUES * USES:
            statement = Statement(ECHO, values, rows)
            answer = await psycopg_async.transact(connection, lambda one=statement: iter(one))  # type: ignore[misc]
            assert answer == [(*values.values(), "100 %", values["text"])]
        found = await connection.execute("select count(*) from pg_prepared_statements where name like 'holdfast%'")
        assert await found.fetchone() == (1,)


def test_a_value_that_text_cannot_hold_is_rejected_as_before(connection: OwnConnection) -> None:
    for _ in range(USES + 1):
        ask(connection, "select %(text)s::text", text="fine")
    with pytest.raises(psycopg.DataError, match="NUL"):
        ask(connection, "select %(text)s::text", text="a\0b")
    assert ask(connection, "select %(text)s::text", text="fine") == [("fine",)]


def test_a_value_of_another_type_is_left_to_a_cursor(connection: OwnConnection) -> None:
    for _ in range(USES + 1):
        ask(connection, "select %(value)s::bytea", value=None)
    assert ask(connection, "select %(value)s::bytea", value=b"\x00\xff") == [(b"\x00\xff",)]


def test_a_statement_that_cannot_be_prepared_is_still_executed(connection: OwnConnection) -> None:
    """`left` has no form for bigint, and a small number of a cursor is a smallint."""
    for _ in range(USES * 2):
        assert ask(connection, "select left('abc', %(number)s)", number=2) == [("ab",)]
    assert prepared(connection) == []


def test_errors_are_those_of_a_cursor_and_leave_the_connection_usable(connection: OwnConnection) -> None:
    ask(connection, "create temporary table one (id bigint primary key)")
    sql = "insert into one values (%(id)s)"
    for number in range(USES + 1):
        assert ask(connection, sql, id=number) == ()
    with pytest.raises(psycopg.errors.UniqueViolation, match="one_pkey") as caught:
        ask(connection, sql, id=1)
    assert caught.value.diag.constraint_name == "one_pkey"
    assert ask(connection, sql, id=USES + 2) == ()


def test_statements_that_the_server_no_longer_has_are_prepared_again(connection: OwnConnection) -> None:
    """psycopg deallocates everything after a rollback, and so may anyone who executes `discard all`."""

    def several() -> Any:
        yield Statement("select 1", {}, rows, together=True)
        found = yield Statement("select %(number)s::bigint", {"number": 1}, rows)
        return found

    for _ in range(USES * 2):
        ask(connection, "select %(number)s::bigint", number=1)
        connection.execute("select 2")
    with suppress(ZeroDivisionError), driver.transaction(connection):
        connection.execute("select 3")
        raise ZeroDivisionError
    connection.execute("select 4")
    assert driver.transact(connection, several) == [(1,)]
    for _ in range(USES * 2):
        assert ask(connection, "select %(number)s::bigint", number=1) == [(1,)]
    connection.execute("discard all")
    assert ask(connection, "select %(number)s::bigint", number=1) == [(1,)]


def test_statements_that_become_frequent_together_get_different_names(connection: OwnConnection) -> None:
    def several() -> Any:
        one = yield Statement("select %(number)s::bigint + 1", {"number": 1}, rows, together=True)
        two = yield Statement("select %(number)s::bigint + 2", {"number": 1}, rows)
        return one, two

    for _ in range(USES * 2):
        assert driver.transact(connection, several) == ([(2,)], [(3,)])
    assert len(prepared(connection)) == 2


def test_statements_are_prepared_only_while_no_transaction_is_open(connection: OwnConnection) -> None:
    """A statement that cannot be prepared would abort the transaction."""

    def several() -> Any:
        for _ in range(USES * 2):
            yield Statement("select left('abc', %(number)s)", {"number": 2}, rows, together=True)
        return "committed"

    assert driver.transact(connection, several) == "committed"
    assert driver.transact(connection, several) == "committed"


def test_a_connection_that_prepares_nothing_uses_cursors(database_url: str) -> None:
    with OwnConnection.connect(database_url, session=sessions.CLIENT, pooler="on") as connection:
        assert connection.prepared is None
    with OwnConnection.connect(database_url, session=sessions.CLIENT, prepare_threshold=None) as connection:
        assert connection.prepared is None


WAIT = "select pg_sleep(%(seconds)s::float8)::text, %(text)s::text"


@pytest.fixture
def waiting(connection: OwnConnection) -> OwnConnection:
    """A connection that has prepared a statement that waits."""
    for _ in range(USES + 1):
        ask(connection, WAIT, seconds=0.0, text="")
    assert len(prepared(connection)) == 1
    return connection


def test_a_prepared_statement_that_takes_too_long_ends_with_a_read_timeout(waiting: OwnConnection) -> None:
    waiting.session = replace(sessions.CLIENT, read_timeout=0.2)
    with pytest.raises(driver.ReadTimeout, match="did not respond within"):
        ask(waiting, WAIT, seconds=30.0, text="")
    assert waiting.closed


def test_a_prepared_statement_reports_why_its_connection_was_closed(waiting: OwnConnection, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as other:
        pid = waiting.info.backend_pid
        begun = "select from pg_stat_activity where pid = %s and wait_event = 'PgSleep'"

        def terminate() -> None:
            while other.execute(begun, [pid]).fetchone() is None:
                pass
            other.execute("select pg_terminate_backend(%s)", [pid])

        thread = Thread(target=terminate)
        thread.start()
        with pytest.raises(psycopg.errors.AdminShutdown):
            ask(waiting, WAIT, seconds=30.0, text="")
        thread.join()


class Suspended:
    """The server of a connection, which is suspended after its first result."""

    def __init__(self, pgconn: Any) -> None:
        self._pgconn = pgconn
        self._responded = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pgconn, name)

    def is_busy(self) -> bool:
        return self._responded or bool(self._pgconn.is_busy())

    def get_result(self) -> Any:
        self._responded = True
        return self._pgconn.get_result()


def test_a_server_that_is_suspended_after_an_error_ends_with_a_read_timeout(connection: OwnConnection) -> None:
    """The connection cannot be used: the response to the statement is not complete."""
    for _ in range(USES + 1):
        ask(connection, "select 1 / %(number)s::bigint", number=1)
    statements: Any = connection.prepared
    statements._pgconn = Suspended(statements._pgconn)
    connection.session = replace(sessions.CLIENT, read_timeout=0.2)
    with pytest.raises(driver.ReadTimeout):
        ask(connection, "select 1 / %(number)s::bigint", number=0)
    assert connection.closed


def test_values_larger_than_the_socket_buffer_are_sent_completely(waiting: OwnConnection) -> None:
    text = "x" * 20_000_000
    assert ask(waiting, WAIT, seconds=0.0, text=text) == [("", text)]
    assert ask(waiting, WAIT, seconds=0.0, text="short") == [("", "short")]


def test_values_are_sent_completely_before_the_response_is_awaited(waiting: OwnConnection) -> None:
    statements = waiting.prepared
    assert statements is not None
    [known] = statements.known.values()
    values = known.encoded({"seconds": 0.0, "text": "x" * 20_000_000})
    assert values is not None

    def readable() -> None:
        raise AssertionError("waits for a response to values that are not sent")

    [row] = statements.rows_of(statements.exchange(waiting, known, values, readable))
    assert len(row[1]) == 20_000_000


def test_a_prepared_statement_that_is_interrupted_closes_the_connection(waiting: OwnConnection) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            ask(waiting, WAIT, seconds=30.0, text="")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert waiting.closed


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_a_prepared_statement_that_is_interrupted_is_cancelled_on_the_server(
    waiting: OwnConnection, database_url: str, kind: type[BaseException]
) -> None:
    pid = waiting.info.backend_pid

    def interrupt(number: int, frame: object) -> None:
        raise kind

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(kind):
            ask(waiting, WAIT, seconds=30.0, text="")
    finally:
        signal.signal(signal.SIGALRM, before)
    with psycopg.connect(database_url, autocommit=True) as other:
        ended_at = monotonic() + 10
        while other.execute("select from pg_stat_activity where pid = %s", [pid]).fetchone() is not None:
            assert monotonic() < ended_at


# The server sends the rows, and then the notice, before it commits.
CHECKED = """
    create table public.checked (id bigint primary key);
    create function public.check_late() returns trigger language plpgsql as $$
    begin
        if new.id = 100 then
            raise notice 'not committed yet';
            perform pg_sleep(30);
        elsif new.id = 200 then
            raise exception 'refused at the commit';
        end if;
        return null;
    end $$;
    create constraint trigger checked_late after insert on public.checked deferrable initially deferred
        for each row execute function public.check_late();
"""
INSERT = "insert into public.checked values (%(id)s) returning id"


@pytest.fixture
def checked(connection: OwnConnection) -> OwnConnection:
    """A connection that has prepared an insert into a table that is checked at the commit."""
    connection.execute(CHECKED, prepare=False)
    for number in range(USES + 1):
        assert ask(connection, INSERT, id=number) == [(number,)]
    assert len(prepared(connection)) == 1
    return connection


def test_rows_of_a_statement_whose_commit_was_not_confirmed_are_not_returned(checked: OwnConnection) -> None:
    def cut(notice: object) -> None:
        with socket(fileno=os.dup(checked.fileno())) as its:
            its.shutdown(SHUT_RDWR)

    checked.add_notice_handler(cut)
    with pytest.raises(psycopg.OperationalError):
        ask(checked, INSERT, id=100)


def test_a_connection_that_is_closed_during_the_commit_reports_why(checked: OwnConnection, database_url: str) -> None:
    pid = checked.info.backend_pid

    def terminate(notice: object) -> None:
        with psycopg.connect(database_url, autocommit=True) as other:
            other.execute("select pg_terminate_backend(%s)", [pid])

    checked.add_notice_handler(terminate)
    with pytest.raises(psycopg.errors.AdminShutdown):
        ask(checked, INSERT, id=100)


def test_an_error_at_the_commit_is_the_same_as_with_a_cursor(checked: OwnConnection) -> None:
    with pytest.raises(psycopg.errors.RaiseException, match="refused at the commit"):
        ask(checked, INSERT, id=200)
    assert ask(checked, INSERT, id=201) == [(201,)]


def test_a_response_that_has_already_been_received_is_read(waiting: OwnConnection) -> None:
    """The TLS library decrypts up to 16 kB at once, and libpq before version 18 may read only a part of that."""
    statements = waiting.prepared
    assert statements is not None
    [known] = statements.known.values()
    values = known.encoded({"seconds": 0.0, "text": "x"})
    assert values is not None
    ends_at = monotonic() + 10

    def readable() -> None:
        assert monotonic() < ends_at

    assert list(statements.rows_of(statements.exchange(waiting, known, values, readable))) == [("", "x")]


def test_notifications_that_arrive_with_a_prepared_statement_are_passed_on(connection: OwnConnection) -> None:
    received: list[str] = []
    connection.add_notify_handler(lambda notification: received.append(notification.payload))
    connection.execute("listen here")
    sent = [str(number) for number in range(USES * 2)]
    for payload in sent:
        ask(connection, "select pg_notify('here', %(payload)s)::text", payload=payload)
    assert received == sent


def test_a_closed_connection_is_stale_even_if_its_descriptor_is_in_use_again(
    connection: OwnConnection,
) -> None:
    number = connection.fileno()
    connection.close()
    read_from, write_to = os.pipe()
    reused = os.dup2(read_from, number)
    assert connection.is_stale()
    for each in {read_from, write_to, reused}:
        os.close(each)
