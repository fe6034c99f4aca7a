"""One test suite for all drivers: each test gets a timeline on a driver; `drivers.py` selects the drivers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.conformance.drivers import DRIVERS, POOLED, Driver, drivers_for
from tests.timeline import Timeline


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "driver" in metafunc.fixturenames:
        module = Path(str(metafunc.module.__file__)).stem
        every_driver = metafunc.definition.get_closest_marker("every_driver") is not None
        metafunc.parametrize("driver", drivers_for(module, every_driver=every_driver), indirect=True)


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
