"""A client notifies workers with the statement that creates a run, and not if it did not create one."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest

from holdfast import AsyncClient, Client, task
from holdfast.doorbells.bell import QUIET
from holdfast.runtime.settings import Settings
from tests.integration.worker_support import DEADLINE


@task("ringing.noop")
def noop(n: int = 0) -> int:
    return n


@pytest.fixture
def listener(database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("listen holdfast")
        yield connection


def received_hints(listener: psycopg.Connection, least: int = 1) -> list[str]:
    """The hints that arrive: wait for at least so many, and a little longer to see that there are no more."""
    received = [notify.payload for notify in listener.notifies(timeout=DEADLINE, stop_after=least)] if least else []
    return received + [notify.payload for notify in listener.notifies(timeout=0.3)]


def test_single_submit_rings_once(database_url: str, listener: psycopg.Connection) -> None:
    with Client(Settings(database_url=database_url)) as client:
        client.submit(noop, {"n": 1}, queue="fast")
        assert received_hints(listener) == ["fast"]
        client.submit(noop, {"n": 1}, key="k")
        assert received_hints(listener) == ["default"]
        assert client.submit(noop, {"n": 1}, key="k").created is False
        assert received_hints(listener, least=0) == []


def test_many_submits_ring_rarely(database_url: str, listener: psycopg.Connection) -> None:
    with Client(Settings(database_url=database_url)) as client:
        began = time.monotonic()
        for n in range(200):
            client.submit(noop, {"n": n})
        took = time.monotonic() - began
    rings = received_hints(listener)
    assert set(rings) == {"default"}
    # One immediately, then at most one per quiet period, and the last one.
    assert len(rings) <= 2 + took / QUIET


async def test_single_submit_of_an_asynchronous_client_rings_once(
    database_url: str, listener: psycopg.Connection
) -> None:
    async with AsyncClient(Settings(database_url=database_url)) as client:
        await client.submit(noop, {"n": 1})
    assert received_hints(listener) == ["default"]
