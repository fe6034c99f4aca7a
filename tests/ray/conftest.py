"""One Ray head for all tests of a process, and one database, whose URL is in the environment of its jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.raycore.local import started
from holdfast.testing.databases import scratch
from tests.ray.head import Head
from tests.ray.stage import RayStage
from tests.ray.stand_in import StandIn

# Short enough for a lease to expire within a test, and long enough to be renewed on a busy machine.
LEASE_SECONDS, RENEW_SECONDS = 30.0, 5.0
GRACE_SECONDS = 2.0


@pytest.fixture(scope="session")
def ray_database_url(server_url: str) -> Iterator[str]:
    from holdfast.schema.migrate import upgrade

    with scratch(server_url) as url:
        upgrade(url)
        yield url


@pytest.fixture(scope="session")
def node_settings(ray_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of the nodes, for jobs and actors."""
    return {
        "HOLDFAST_DATABASE_URL": ray_database_url,
        "HOLDFAST_TASKS": "tests.ray.tasks,tests.ray.run_tasks",
        "HOLDFAST_ARTIFACTS": str(tmp_path_factory.mktemp("artifacts")),
        "HOLDFAST_LEASE_SECONDS": f"{LEASE_SECONDS:g}",
        "HOLDFAST_RENEW_SECONDS": f"{RENEW_SECONDS:g}",
        "HOLDFAST_GRACE_SECONDS": f"{GRACE_SECONDS:g}",
    }


@pytest.fixture(scope="session")
def ray_head(node_settings: dict[str, str]) -> Iterator[Head]:
    head = new_head(node_settings)
    yield head
    head.close()


def new_head(settings: dict[str, str], like: Head | None = None) -> Head:
    return started(lambda: Head(settings, like))


def use_token(environment: pytest.MonkeyPatch, head: Head | StandIn) -> None:
    for name, value in head.token.items():
        environment.setenv(name, value)


@pytest.fixture
def stand_in(node_settings: dict[str, str]) -> Iterator[StandIn]:
    stand_in = StandIn(node_settings)
    yield stand_in
    stand_in.close()


@pytest.fixture(params=["stand_in", "ray"])
def jobs_stage(
    request: pytest.FixtureRequest, node_settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RayStage]:
    """A stage for jobs, on a stand-in for Ray's job server and on Ray itself."""
    head: Head | StandIn = request.getfixturevalue("stand_in" if request.param == "stand_in" else "ray_head")
    use_token(monkeypatch, head)
    stage = RayStage(head, node_settings, tmp_path)
    yield stage
    stage.close()


@pytest.fixture
def quick_stage(
    stand_in: StandIn, node_settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RayStage]:
    """A stage for jobs on the stand-in only, for behavior that test_runs.py tests on Ray itself."""
    use_token(monkeypatch, stand_in)
    stage = RayStage(stand_in, node_settings, tmp_path)
    yield stage
    stage.close()


@pytest.fixture
def stage(
    ray_head: Head, node_settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RayStage]:
    use_token(monkeypatch, ray_head)
    stage = RayStage(ray_head, node_settings, tmp_path)
    yield stage
    stage.close()


@pytest.fixture(scope="module", params=["inline", "process", "ray_core", "ray_job"])
def shared_stage(
    request: pytest.FixtureRequest, node_settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RayStage]:
    """A worker with one of the executors, for all tests of a module. Only Ray's executors start a Ray."""
    executor = str(request.param)
    head: Head | None = request.getfixturevalue("ray_head") if executor.startswith("ray") else None
    stage = RayStage(head, node_settings, tmp_path_factory.mktemp(executor), executor)
    stage.worker(executor, **(head.token if head else {}))
    yield stage
    stage.close()


@pytest.fixture
def runs(shared_stage: RayStage, tmp_path: Path) -> RayStage:
    """The shared worker, and a directory for the files of this test."""
    shared_stage.directory = tmp_path
    return shared_stage
