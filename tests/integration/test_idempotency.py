"""Races for a key or a payload, with real threads: one run is created, and all requests get the same answer."""

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


class ConcurrentClients:
    """Many concurrent requests over a few connections, each of which serves one request at a time."""

    def __init__(self, url: str) -> None:
        self._connections = [psycopg.connect(url, autocommit=True) for _ in range(CONNECTIONS)]
        self._threads = ThreadPoolExecutor(CONNECTIONS)

    def submit_all(self, requests: list[dict[str, Any]]) -> list[Any]:
        """Submit all requests concurrently. Return the result of each: a run's id or an error."""
        start = threading.Barrier(CONNECTIONS)
        shares = [requests[at::CONNECTIONS] for at in range(CONNECTIONS)]

        def several(connection: psycopg.Connection, share: list[dict[str, Any]]) -> list[Any]:
            start.wait()
            return [self._submit(connection, request) for request in share]

        results = self._threads.map(several, self._connections, shares)
        return [answer for answers in results for answer in answers]

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
def clients(database_url: str) -> Iterator[ConcurrentClients]:
    clients = ConcurrentClients(database_url)
    yield clients
    clients.close()


def runs(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("select count(*) from holdfast.runs").fetchone()
    assert row is not None
    return int(row[0])


def test_fifty_rounds_of_sixty_four_requests_with_one_key_create_fifty_runs(
    clients: ConcurrentClients, database_url: str
) -> None:
    for number in range(ROUNDS):
        results = clients.submit_all([{"parameters": {"n": number}, "key": f"key {number}"}] * AT_ONCE)
        assert len(results) == AT_ONCE
        assert len(set(results)) == 1
    assert runs(database_url) == ROUNDS


def test_concurrent_requests_with_one_key_and_two_payloads_create_one_run(
    clients: ConcurrentClients, database_url: str
) -> None:
    for number in range(10):
        results = clients.submit_all([{"parameters": {"n": at % 2}, "key": f"key {number}"} for at in range(AT_ONCE)])
        refused = [answer for answer in results if isinstance(answer, KeyReused)]
        assert len({answer for answer in results if isinstance(answer, str)}) == 1
        assert len(refused) == AT_ONCE // 2
        assert {error.fields for error in refused} == {("/parameters/n",)}
    assert runs(database_url) == 10


@pytest.mark.parametrize("dedupe", ["active", timedelta(hours=1)])
def test_concurrent_requests_with_dedupe_create_one_run(
    clients: ConcurrentClients, database_url: str, dedupe: Any
) -> None:
    for number in range(10):
        results = clients.submit_all([{"parameters": {"n": number}, "dedupe": dedupe}] * AT_ONCE)
        assert len(set(results)) == 1
    assert runs(database_url) == 10


def test_an_expired_key_of_a_pruned_run_is_reused_by_one_of_several_requests(
    clients: ConcurrentClients, database_url: str
) -> None:
    """While another session deletes expired keys."""
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
            results = clients.submit_all([{"parameters": {"n": number}, "key": key}] * AT_ONCE)
            done.set()
            cleaning.join()
        assert len(set(results)) == 1
        assert results[0] != old.run.id
        assert runs(database_url) == 1


def _clean(url: str, done: threading.Event) -> None:
    from holdfast.sql import keys

    with psycopg.connect(url, autocommit=True) as connection:
        while not done.is_set():
            run(connection, iter(keys.expire(100)))


def test_key_of_a_rolled_back_request_is_used_by_the_next(database_url: str) -> None:
    """The second request waits for the first, and does not return a run that was rolled back."""
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
