"""The same tests for all drivers: each test gets a timeline on a driver, and runs once for each driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.conformance.drivers import DRIVERS, ONLY_BORROWED, POOLED, Driver
from tests.timeline import Timeline


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Skip tests of operations that a driver for callers' transactions does not offer."""
    if "driver" in metafunc.fixturenames:
        module = Path(str(metafunc.module.__file__)).stem
        names = [name for name in DRIVERS if module in ONLY_BORROWED.get(name, (module,))]
        metafunc.parametrize("driver", names, indirect=True)


@pytest.fixture
def driver(request: pytest.FixtureRequest, database_url: str) -> Iterator[Driver]:
    made = DRIVERS[request.param]
    url = request.getfixturevalue("pooled_url") if request.param in POOLED else database_url
    with made(url) as driver:
        yield driver


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection]:
    """A separate connection of the test."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def timeline(driver: Driver, connection: psycopg.Connection) -> Timeline:
    return Timeline(driver, connection)
