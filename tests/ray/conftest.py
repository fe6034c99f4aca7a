"""One Ray head for all tests of a process, and one database that its jobs find in their environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.databases import scratch
from tests.ray.head import Head
from tests.ray.stage import RayStage

# Ends by cancel, by fence or by death have to show within a test, so leases are short.
LEASE_SECONDS, RENEW_SECONDS = 12.0, 2.0
TRIES = 5


@pytest.fixture(scope="session")
def ray_database_url(server_url: str) -> Iterator[str]:
    from holdfast.schema.migrate import upgrade

    with scratch(server_url) as url:
        upgrade(url)
        yield url


@pytest.fixture(scope="session")
def ray_head(ray_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    settings = {
        "HOLDFAST_DATABASE_URL": ray_database_url,
        "HOLDFAST_TASKS": "tests.ray.tasks",
        "HOLDFAST_ARTIFACTS": str(tmp_path_factory.mktemp("artifacts")),
        "HOLDFAST_LEASE_SECONDS": f"{LEASE_SECONDS:g}",
        "HOLDFAST_RENEW_SECONDS": f"{RENEW_SECONDS:g}",
    }
    with pytest.MonkeyPatch.context() as environment:
        head = _started(settings, environment)
        yield head
        head.close()


def _started(settings: dict[str, str], environment: pytest.MonkeyPatch) -> Head:
    """A head that answers. On a busy machine Ray may need several tries."""
    for _ in range(TRIES):
        head = Head(settings)
        for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
            environment.setenv(name, head.environment[name])
        if head.answers():
            return head
        said = head.said()
        head.close()
    raise AssertionError(f"Ray did not start: {said}")


@pytest.fixture
def stage(ray_head: Head, ray_database_url: str, tmp_path: Path) -> Iterator[RayStage]:
    stage = RayStage(ray_head, ray_database_url, tmp_path)
    yield stage
    stage.close()
