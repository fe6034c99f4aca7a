"""A client tells workers of a run with the statement that makes it, and no one of a run that it did not make."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest

from holdfast import AsyncClient, Client, task
from holdfast.doorbells.bell import QUIET
from holdfast.runtime.settings import Settings


@task("ringing.noop")
def noop(n: int = 0) -> int:
    return n


@pytest.fixture
def ear(database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("listen holdfast")
        yield connection


def heard(ear: psycopg.Connection, within: float = 0.3) -> list[str]:
    return [notify.payload for notify in ear.notifies(timeout=within)]


def test_a_lone_submit_rings_once(database_url: str, ear: psycopg.Connection) -> None:
    with Client(Settings(database_url=database_url)) as client:
        client.submit(noop, {"n": 1}, queue="fast")
        assert heard(ear) == ["fast"]
        client.submit(noop, {"n": 1}, key="k")
        assert heard(ear) == ["default"]
        assert client.submit(noop, {"n": 1}, key="k").created is False
        assert heard(ear) == []


def test_many_submits_ring_now_and_then(database_url: str, ear: psycopg.Connection) -> None:
    with Client(Settings(database_url=database_url)) as client:
        began = time.monotonic()
        for n in range(200):
            client.submit(noop, {"n": n})
        took = time.monotonic() - began
    rings = heard(ear)
    assert set(rings) == {"default"}
    # One at once, then at most one in each quiet while, and the last.
    assert len(rings) <= 2 + took / QUIET


async def test_a_lone_submit_of_an_awaiting_client_rings_once(database_url: str, ear: psycopg.Connection) -> None:
    async with AsyncClient(Settings(database_url=database_url)) as client:
        await client.submit(noop, {"n": 1})
    assert heard(ear) == ["default"]
