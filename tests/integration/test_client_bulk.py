"""The runs of a bulk submission become objects when they are read, and behave like a list of handles."""

from __future__ import annotations

import pytest

from holdfast import AsyncClient, Client, task
from holdfast.runtime.settings import Settings
from holdfast.verbs.submissions import BATCH


@task("bulk.noop")
def noop(n: int) -> int:
    return n


COUNT = 2 * BATCH + 3


@pytest.fixture
def client(database_url: str) -> Client:
    return Client(Settings(database_url=database_url))


def test_runs_of_several_batches_are_read_by_position_slice_and_iteration(client: Client) -> None:
    with client:
        runs = client.submit_many(noop, [{"n": n} for n in range(COUNT)])
        stored = {run.id: run.parameters for run in client.list(limit=200)}
        assert len(runs) == COUNT
        assert [run.parameters["n"] for run in runs] == list(range(COUNT))
        assert [runs[n].parameters["n"] for n in (0, 49, 50, -1)] == [0, 49, 50, COUNT - 1]
        assert [run.parameters["n"] for run in runs[-4::2]] == [COUNT - 4, COUNT - 2]
        assert {run.id: run.parameters for run in runs[-200:]} == stored
        assert all(run.created for run in runs)
        with pytest.raises(IndexError):
            runs[COUNT]


def test_handle_is_the_same_however_it_is_read_and_keeps_what_it_learns(client: Client) -> None:
    with client:
        runs = client.submit_many(noop, [{"n": n} for n in range(3)])
        runs[1].cancel()
        assert [run.status for run in runs] == ["PENDING", "CANCELLED", "PENDING"]
        assert runs[-2] is list(runs)[1] is runs[1:2][0]
        assert repr(runs) == repr(list(runs))
        assert runs[0].id != runs[2].id
        assert client.get(runs[2]).payload_hash == runs[2].payload_hash


async def test_runs_of_an_asynchronous_client_are_read_the_same_way(database_url: str) -> None:
    async with AsyncClient(Settings(database_url=database_url)) as client:
        runs = await client.submit_many(noop, [{"n": n} for n in range(COUNT)])
        await runs[-1].cancel()
        assert [run.status for run in runs[-2:]] == ["PENDING", "CANCELLED"]
        assert (await client.get(runs[0].id)).parameters == {"n": 0}
