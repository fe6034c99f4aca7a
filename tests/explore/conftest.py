"""Exploring takes minutes; by default a slice of it runs. `--explore=full` plays every schedule there is."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from holdfast.testing import clock
from tests.explorer.stage import Stage


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--explore", choices=["slice", "full"], default="slice", help="how much the explorer plays")


@pytest.fixture
def full(request: pytest.FixtureRequest) -> bool:
    return request.config.getoption("explore", default="slice") == "full"


@pytest.fixture
def stage_url(database_url: str) -> str:
    with psycopg.connect(database_url, autocommit=True) as connection:
        clock.install(connection)
    return database_url


@pytest.fixture
def stage(stage_url: str) -> Iterator[Stage]:
    stage = Stage(stage_url)
    yield stage
    stage.close()
