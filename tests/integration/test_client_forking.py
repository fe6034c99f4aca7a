"""Clients across os.fork(): each process has its own connections, and its parent's stay usable."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from holdfast import AsyncClient, Client
from holdfast.domain.errors import ClientClosed
from holdfast.runtime.settings import Settings
from tests.forking_support import Forked
from tests.integration.embedded_support import runs as server_runs

ROUNDS = 150


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    return Settings(database_url=database_url, artifacts=str(tmp_path))


@pytest.fixture
def client(settings: Settings) -> Iterator[Client]:
    with Client(settings) as made:
        yield made


def submit(client: Client, count: int) -> list[str]:
    return [client.submit("mock", {"seconds": 0, "payload": n}, dedupe="off").id for n in range(count)]


def read(client: Client, ids: list[str]) -> Counter[str]:
    """Read the runs repeatedly, and count the outcomes."""
    found: Counter[str] = Counter()
    for n in range(ROUNDS):
        wanted = ids[n % len(ids)]
        try:
            found["right" if client.get(wanted).id == wanted else "another run"] += 1
        except Exception as error:  # noqa: BLE001
            found[f"{type(error).__name__}: {error}"] += 1
    return found


def backends(url: str) -> set[int]:
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
            " and backend_type = 'client backend'"
        )
        return {pid for (pid,) in found}


def test_parent_and_child_that_use_one_client_each_get_their_own_answers(client: Client) -> None:
    ids = submit(client, 10)
    child = Forked(lambda: read(client, ids[5:]))
    mine = read(client, ids[:5])
    assert (mine, child.result()) == ({"right": ROUNDS}, {"right": ROUNDS})


def test_child_submits_cancels_and_closes_without_effect_on_the_parents_connections(
    client: Client, settings: Settings
) -> None:
    run = client.submit("mock", {"seconds": 0})
    before = backends(settings.database_url or "")

    def use() -> str:
        made = client.submit("mock", {"seconds": 0}, dedupe="off")
        run.cancel()
        client.close()
        gc.collect()
        return made.id

    made = Forked(use).result()
    assert client.get(made).status == "PENDING"
    assert client.get(run).status == "CANCELLED"
    assert before <= backends(settings.database_url or "")


def test_child_that_closes_an_unused_client_leaves_the_parents_connections_open(
    client: Client, settings: Settings
) -> None:
    ids = submit(client, 1)
    before = backends(settings.database_url or "")
    Forked(client.close).result()
    assert client.get(ids[0]).id == ids[0]
    assert backends(settings.database_url or "") == before


def test_child_of_a_process_that_closed_its_client_finds_it_closed(settings: Settings) -> None:
    with Client(settings) as client:
        ids = submit(client, 1)

    def use() -> str:
        with pytest.raises(ClientClosed):
            client.get(ids[0])
        return "closed"

    assert Forked(use).result() == "closed"


def test_fork_of_a_fork_has_its_own_connections(client: Client) -> None:
    ids = submit(client, 2)

    def use() -> tuple[Counter[str], Counter[str]]:
        client.get(ids[0])
        grandchild = Forked(lambda: read(client, ids[1:]))
        return read(client, ids[:1]), grandchild.result()

    assert Forked(use).result() == ({"right": ROUNDS}, {"right": ROUNDS})


_pooled: Callable[[list[str]], Counter[str]]


def _read_pooled(ids: list[str]) -> Counter[str]:
    return _pooled(ids)


def test_multiprocessing_pool_of_forks_uses_the_client_of_the_parent(client: Client) -> None:
    global _pooled
    ids = submit(client, 9)
    _pooled = lambda wanted: read(client, wanted)  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pool = multiprocessing.get_context("fork").Pool(2)
    with pool:
        theirs = pool.map_async(_read_pooled, [ids[3:6], ids[6:]])
        mine = read(client, ids[:3])
        assert [mine, *theirs.get(timeout=30)] == [{"right": ROUNDS}] * 3


def test_child_of_a_process_whose_bell_has_a_thread_sends_hints_with_its_own(
    client: Client, settings: Settings
) -> None:
    with psycopg.connect(settings.database_url or "", autocommit=True) as connection:
        connection.execute("listen holdfast")
        client.ring_later(["parent"])  # starts the thread

        def use() -> None:
            client.ring_later(["child"])
            client.close()

        Forked(use).result()
        with closing(connection.notifies(timeout=10)) as received:
            assert any(notification.payload == "child" for notification in received)


# The child ends like any program: it runs exit handlers and deletes its objects.
PROGRAM = """
import os, sys
from holdfast import Client
client = Client()
run = client.submit("mock", {"seconds": 0})
client.ring_later(["default"])
uses = sys.argv[1] == "uses"
child = os.fork()
if child == 0:
    if uses:
        assert client.get(run.id).id == run.id
    sys.exit(7)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 7, status
assert all(client.get(run.id).id == run.id for _ in range(20))
print("done")
"""


@pytest.mark.parametrize("uses", ["uses", "ignores"])
def test_parent_continues_after_its_child_exits_normally(database_url: str, tmp_path: Path, uses: str) -> None:
    environment = {"HOLDFAST_DATABASE_URL": database_url, "HOLDFAST_ARTIFACTS": str(tmp_path)}
    done = _run(PROGRAM, uses, environment)
    assert (done.stdout, done.stderr) == ("done\n", "")


def _run(program: str, argument: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, argument],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# The first child leaves before its parent. The second leaves after it, as the last user of the embedded server.
EMBEDDED = """
import os, sys
from holdfast import Client
client = Client()
run = client.submit("mock", {"seconds": 0})

def fork():
    ready, signal_ready = os.pipe()
    release, hold = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(hold)
        assert client.get(run.id).id == run.id
        os.write(signal_ready, b"x")
        os.read(release, 1)  # returns when the parent closes its end
        assert client.get(run.id).id == run.id
        client.close()
        sys.exit(7)
    os.close(signal_ready)
    assert os.read(ready, 1) == b"x"
    return child, hold

def end(child, hold):
    os.close(hold)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7, status

end(*fork())
assert client.get(run.id).id == run.id
second = fork()
client.close()
end(*second)
print("done")
"""


def test_embedded_server_runs_until_parent_and_children_have_left(home: Path) -> None:
    done = _run(EMBEDDED, "", {"HOLDFAST_HOME": str(home), "HOLDFAST_ARTIFACTS": str(home / "artifacts")})
    assert (done.stdout, done.stderr) == ("done\n", "")
    assert not server_runs(home)


def test_client_on_a_connection_of_the_parent_is_rejected_in_the_child(client: Client, settings: Settings) -> None:
    with psycopg.connect(settings.database_url or "") as connection:
        borrowed = client.on(connection)
        run = borrowed.submit("mock", {"seconds": 0})
        with pytest.raises(AssertionError, match=r"ConfigurationError: .* cannot be used in its fork.* pass it to on"):
            Forked(lambda: borrowed.get(run.id).id).result()
        assert borrowed.get(run.id).id == run.id


async def _get(client: AsyncClient, run_id: str) -> str:
    return (await client.get(run_id)).id


async def test_async_client_that_was_used_is_rejected_in_the_child(settings: Settings) -> None:
    async with AsyncClient(settings) as client:
        run = await client.submit("mock", {"seconds": 0})
        with pytest.raises(AssertionError, match=r"ConfigurationError: this AsyncClient .* create another AsyncClient"):
            Forked(lambda: asyncio.run(_get(client, run.id))).result()
        assert (await client.get(run.id)).id == run.id
        Forked(lambda: asyncio.run(client.close())).result()
        assert (await client.get(run.id)).id == run.id


def test_async_client_that_was_not_used_before_the_fork_works_in_the_child(settings: Settings) -> None:
    client = AsyncClient(settings)

    async def use() -> str:
        async with client:
            return (await client.submit("mock", {"seconds": 0})).status

    assert Forked(lambda: asyncio.run(use())).result() == "PENDING"
    asyncio.run(client.close())
