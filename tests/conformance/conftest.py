"""One test suite for all drivers: each test gets a timeline on a driver; `drivers.py` selects the drivers."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.conformance.drivers import POOLED, Driver, drivers_for
from tests.conformance.reusable_database import ReusableDatabase
from tests.databases import Databases
from tests.timeline import Timeline

FAILED = pytest.StashKey[bool]()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "driver" in metafunc.fixturenames:
        module = Path(str(metafunc.module.__file__)).stem
        every_driver = metafunc.definition.get_closest_marker("every_driver") is not None
        metafunc.parametrize("driver", drivers_for(module, every_driver=every_driver), indirect=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.fixture(scope="module")
def module_database(clocked_databases: Databases) -> Iterator[ReusableDatabase]:
    database = ReusableDatabase(clocked_databases)
    yield database
    database.close()


def is_fresh(request: pytest.FixtureRequest) -> bool:
    return request.node.get_closest_marker("fresh_database") is not None


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    if is_fresh(request):
        yield request.getfixturevalue("database_url")
        return
    database: ReusableDatabase = request.getfixturevalue("module_database")
    database.begin()
    yield database.url
    database.end(passed=not request.node.stash.get(FAILED, False))


@pytest.fixture
def database(
    request: pytest.FixtureRequest, database_url: str, clocked_databases: Databases
) -> Iterator[ReusableDatabase]:
    """The database and the sessions of this test."""
    if not is_fresh(request):
        yield request.getfixturevalue("module_database")
        return
    own = ReusableDatabase(clocked_databases, database_url)
    yield own
    own.close()


@pytest.fixture
def driver(request: pytest.FixtureRequest, database: ReusableDatabase) -> Driver:
    pooler = request.getfixturevalue("pooler_url") if request.param in POOLED else None
    return database.driver(request.param, pooler)


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection]:
    """A separate connection of the test."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def timeline(driver: Driver, database: ReusableDatabase) -> Timeline:
    return Timeline(driver, database.clock)
