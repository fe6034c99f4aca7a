"""Races for a key or a payload, with real threads: one run, and everybody is told the same."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast import ops
from holdfast.domain.errors import KeyReused
from holdfast.drivers.psycopg import run, transact
from tests.timeline import new_run

ROUNDS, AT_ONCE, CONNECTIONS = 50, 64, 16


class Crowd:
    """Many who ask at the same moment, over a few connections each of which is used by one at a time."""

    def __init__(self, url: str) -> None:
        self._connections = [psycopg.connect(url, autocommit=True) for _ in range(CONNECTIONS)]
        self._threads = ThreadPoolExecutor(CONNECTIONS)

    def ask(self, requests: list[dict[str, Any]]) -> list[Any]:
        """Submit all of these; what each was told, a run's id or an error."""
        start = threading.Barrier(CONNECTIONS)
        shares = [requests[at::CONNECTIONS] for at in range(CONNECTIONS)]

        def several(connection: psycopg.Connection, share: list[dict[str, Any]]) -> list[Any]:
            start.wait()
            return [self._submit(connection, request) for request in share]

        told = self._threads.map(several, self._connections, shares)
        return [answer for answers in told for answer in answers]

    @staticmethod
    def _submit(connection: psycopg.Connection, request: dict[str, Any]) -> Any:
        new = new_run(**request)
        try:
            return transact(connection, lambda: ops.submit(new)).run.id
        except KeyReused as error:
            return error

    def close(self) -> None:
        self._threads.shutdown()
        for connection in self._connections:
            connection.close()


@pytest.fixture
def crowd(database_url: str) -> Iterator[Crowd]:
    crowd = Crowd(database_url)
    yield crowd
    crowd.close()


def runs(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("select count(*) from holdfast.runs").fetchone()
    assert row is not None
    return int(row[0])


def test_fifty_rounds_of_sixty_four_with_one_key_make_fifty_runs(crowd: Crowd, database_url: str) -> None:
    for number in range(ROUNDS):
        told = crowd.ask([{"parameters": {"n": number}, "key": f"key {number}"}] * AT_ONCE)
        assert len(told) == AT_ONCE
        assert len(set(told)) == 1
    assert runs(database_url) == ROUNDS


def test_one_key_with_two_payloads_goes_to_one_of_them(crowd: Crowd, database_url: str) -> None:
    for number in range(10):
        told = crowd.ask([{"parameters": {"n": at % 2}, "key": f"key {number}"} for at in range(AT_ONCE)])
        refused = [answer for answer in told if isinstance(answer, KeyReused)]
        assert len({answer for answer in told if isinstance(answer, str)}) == 1
        assert len(refused) == AT_ONCE // 2
        assert {error.fields for error in refused} == {("/parameters/n",)}
    assert runs(database_url) == 10


@pytest.mark.parametrize("dedupe", ["active", timedelta(hours=1)])
def test_dedupe_is_free_of_races(crowd: Crowd, database_url: str, dedupe: Any) -> None:
    for number in range(10):
        told = crowd.ask([{"parameters": {"n": number}, "dedupe": dedupe}] * AT_ONCE)
        assert len(set(told)) == 1
    assert runs(database_url) == 10


def test_an_expired_key_of_a_pruned_run_is_reused_by_one_of_several_requests(crowd: Crowd, database_url: str) -> None:
    """While another session cleans expired keys up."""
    for number in range(10):
        key = f"key {number}"
        with psycopg.connect(database_url, autocommit=True) as connection:
            old = transact(connection, lambda key=key: ops.submit(new_run({"n": "old"}, key=key)))  # type: ignore[misc]
            connection.execute(
                "update holdfast.idempotency_keys set created_at = created_at - interval '2 days',"
                " expires_at = now() - interval '1 second' where key = %s",
                [key],
            )
            connection.execute("truncate holdfast.runs, holdfast.ready cascade")
            connection.execute(
                "insert into holdfast.pruned_ranges (low, high) values (%s, %s)", [old.run.id, old.run.id]
            )
            done = threading.Event()
            cleaning = threading.Thread(target=_clean, args=(database_url, done))
            cleaning.start()
            told = crowd.ask([{"parameters": {"n": number}, "key": key}] * AT_ONCE)
            done.set()
            cleaning.join()
        assert len(set(told)) == 1
        assert told[0] != old.run.id
        assert runs(database_url) == 1


def _clean(url: str, done: threading.Event) -> None:
    from holdfast.sql import keys

    with psycopg.connect(url, autocommit=True) as connection:
        while not done.is_set():
            run(connection, iter(keys.expire(100)))


def test_a_key_whose_first_user_rolls_back_goes_to_the_next(database_url: str) -> None:
    """The second waits for the first, and is not told of a run that never came to be."""
    first, second = new_run(key="k"), new_run(key="k")
    with psycopg.connect(database_url) as slow, psycopg.connect(database_url, autocommit=True) as other:
        assert run(slow, ops.submit(first)).created
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(transact, other, lambda: ops.submit(second))
            with psycopg.connect(database_url, autocommit=True) as watching:
                while not watching.execute(
                    "select 1 where cardinality(pg_blocking_pids(%s)) > 0", [other.info.backend_pid]
                ).fetchone():
                    assert not waiting.done()
            slow.rollback()
            answer = waiting.result(timeout=30)
    assert (answer.run.id, answer.created) == (second.id, True)
    assert runs(database_url) == 1
