"""One Ray head for all tests of a process, and one database that its jobs find in their environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.databases import scratch
from tests.ray.head import Head
from tests.ray.stage import RayStage

# Ends by cancel, by fence or by death have to show within a test, so leases are short.
LEASE_SECONDS, RENEW_SECONDS = 12.0, 2.0


@pytest.fixture(scope="session")
def ray_database_url(server_url: str) -> Iterator[str]:
    from holdfast.schema.migrate import upgrade

    with scratch(server_url) as url:
        upgrade(url)
        yield url


@pytest.fixture(scope="session")
def ray_head(ray_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    head = Head(
        {
            "HOLDFAST_DATABASE_URL": ray_database_url,
            "HOLDFAST_TASKS": "tests.ray.tasks",
            "HOLDFAST_ARTIFACTS": str(tmp_path_factory.mktemp("artifacts")),
            "HOLDFAST_LEASE_SECONDS": f"{LEASE_SECONDS:g}",
            "HOLDFAST_RENEW_SECONDS": f"{RENEW_SECONDS:g}",
        }
    )
    names = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update({name: head.environment[name] for name in names})
    try:
        head.wait_until_it_answers()
        yield head
    finally:
        head.close()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@pytest.fixture
def stage(ray_head: Head, ray_database_url: str, tmp_path: Path) -> Iterator[RayStage]:
    stage = RayStage(ray_head, ray_database_url, tmp_path)
    yield stage
    stage.close()
