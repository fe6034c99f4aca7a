"""A stage for the jobs API: settings in the environment, a worker with all services, and checks at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.assembly.services import services
from holdfast.client import shared
from holdfast.jobs import sync
from holdfast.runtime.runtime import Runtime
from tests.integration.jobs_support import disagreements
from tests.integration.worker_support import Stage

TASKS = "tests.integration.job_tasks"


@pytest.fixture
def stage(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.delenv("HOLDFAST_TEST_RUN_DIRECTORY", raising=False)
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database_url)
    monkeypatch.setenv("HOLDFAST_TASKS", TASKS)
    monkeypatch.setenv("HOLDFAST_ARTIFACTS", str(tmp_path / "artifacts"))
    monkeypatch.setenv("HOLDFAST_LEASE_SECONDS", "3")
    stage = Stage(database_url, tmp_path, tasks=(TASKS,))
    yield stage
    stage.close()
    shared.close()
    with psycopg.connect(database_url) as connection:
        assert disagreements(connection) == []


@pytest.fixture
def worker(stage: Stage) -> Iterator[None]:
    with Runtime(stage.settings) as runtime, stage.worker(services=services(runtime)):
        yield


def ended(job: Any, within: float = 60) -> Any:
    return sync.wait_for_job(job, within)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
