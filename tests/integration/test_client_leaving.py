"""What clients leave behind: programs that end without closing theirs, and runs that are part of a transaction."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from holdfast import AsyncClient, Client, WaitTimeout
from holdfast.domain.errors import BadInput
from holdfast.runtime.settings import Settings

PROGRAM = """
from holdfast import Client
client = Client()
for n in range(5):
    client.submit("mock", {"seconds": 0, "payload": n})
print("submitted")
"""


def test_a_program_may_end_without_closing_its_client(database_url: str, tmp_path: Path) -> None:
    environment = {"HOLDFAST_DATABASE_URL": database_url, "HOLDFAST_ARTIFACTS": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    # Anything that delays the exit of the program would be reported here.
    assert (done.stdout, done.stderr) == ("submitted\n", "")


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    return Settings(database_url=database_url, artifacts=str(tmp_path))


def test_waiting_for_an_uncommitted_run_raises(settings: Settings) -> None:
    with Client(settings) as client, psycopg.connect(settings.database_url) as connection:
        run = client.on(connection).submit("mock", {"seconds": 0})
        with pytest.raises(BadInput, match="Commit first"):
            run.wait(timeout=60)
        connection.commit()
        assert client.get(run).status == "PENDING"


async def test_awaiting_an_uncommitted_run_raises(settings: Settings) -> None:
    async with AsyncClient(settings) as client:
        connection = await psycopg.AsyncConnection.connect(settings.database_url)
        async with connection:
            run = await client.on(connection).submit("mock", {"seconds": 0})
            with pytest.raises(BadInput, match="Commit first"):
                await run.wait(timeout=60)


async def test_wait_timeout_explains_why_the_run_is_waiting(settings: Settings) -> None:
    with Client(settings) as client, pytest.raises(WaitTimeout, match="no worker is alive"):
        client.submit("mock", {"seconds": 0}).wait(timeout=0.01)
    async with AsyncClient(settings) as client:
        run = await client.submit("mock", {"seconds": 0})
        with pytest.raises(WaitTimeout, match="no worker is alive"):
            await run.wait(timeout=0.01)
