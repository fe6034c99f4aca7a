"""HTTP clients across os.fork(): each process has its own connections."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from holdfast import AsyncHttpClient, HttpClient
from holdfast.domain.errors import ClientClosed
from holdfast.runtime.settings import Settings
from tests.forking_support import Forked
from tests.http.conftest import Server

pytestmark = pytest.mark.one_server

ROUNDS = 30


def read(client: HttpClient, ids: list[str]) -> Counter[str]:
    """Read the runs repeatedly, and count the outcomes."""
    found: Counter[str] = Counter()
    for n in range(ROUNDS):
        wanted = ids[n % len(ids)]
        try:
            found["right" if client.get(wanted).id == wanted else "another run"] += 1
        except Exception as error:  # noqa: BLE001
            found[f"{type(error).__name__}: {error}"] += 1
    return found


def test_http_client_works_in_parent_and_child_until_each_closes_it(server: Server, settings: Settings) -> None:
    with HttpClient(server.url, settings=settings, retry_seconds=2.0) as client:
        ids = [client.submit("mirror", {"n": n}, dedupe="off").id for n in range(6)]

        def use() -> Counter[str]:
            found = read(client, ids[3:])
            client.close()
            with pytest.raises(ClientClosed):
                client.get(ids[0])
            return found

        child = Forked(use)
        mine = read(client, ids[:3])
        assert (mine, child.result()) == ({"right": ROUNDS}, {"right": ROUNDS})
        Forked(client.close).result()
        assert read(client, ids) == {"right": ROUNDS}


def test_stream_of_the_parent_is_rejected_in_the_child(server: Server, settings: Settings) -> None:
    with HttpClient(server.url, settings=settings, retry_seconds=2.0) as client:
        run = client.submit("mirror", {}, dedupe="off")
        events = client.follow_events(run)
        assert next(events).to_status == "PENDING"
        with pytest.raises(AssertionError, match=r"ConfigurationError: this stream .* follow the run again"):
            Forked(lambda: next(events).type).result()
        client.cancel(run)
        assert [event.to_status for event in events] == ["CANCELLED"]


async def test_async_http_client_works_in_the_child(server: Server, settings: Settings) -> None:
    async with AsyncHttpClient(server.url, settings=settings) as client:
        run = await client.submit("mirror", {}, dedupe="off")

        async def use() -> str:
            return (await client.get(run.id)).id

        assert Forked(lambda: asyncio.run(use())).result() == run.id
        assert (await client.get(run.id)).id == run.id
