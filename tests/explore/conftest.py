"""Exploring takes minutes; by default only a sample runs. `--explore=full` plays every schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TypeVar

import pytest

from tests.databases import USES, Databases
from tests.explore.jobs_stage import JobStage
from tests.explorer.stage import Stage

S = TypeVar("S", bound=Stage)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--explore", choices=["slice", "full"], default="slice", help="how much the explorer plays")


@pytest.fixture
def full(request: pytest.FixtureRequest) -> bool:
    return request.config.getoption("explore", default="slice") == "full"


@pytest.fixture
def stage_url(database_url: str) -> str:
    """A database whose clock tests can move; `database_url` gives one to tests that use this fixture."""
    return database_url


class Stages:
    """A stage of each kind, used by one test after the other.

    Its sessions have already planned their statements, which takes several times as long as executing them. Rows of
    earlier tests are deleted; the stage of an aborted test is not reused.
    """

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self._kept: dict[type[Stage], Kept] = {}

    @contextmanager
    def lend(self, kind: type[S]) -> Iterator[S]:
        kept = self._kept.pop(kind, None) or self._made(kind)
        assert isinstance(kept.stage, kind)
        yield kept.stage
        kept.uses += 1
        if kept.uses < USES and kept.stage.settled and self._databases.clear(kept.url):
            self._kept[kind] = kept
        else:
            kept.close()

    def close(self) -> None:
        for kept in self._kept.values():
            kept.close()

    def _made(self, kind: type[Stage]) -> Kept:
        with ExitStack() as stack:
            url = stack.enter_context(self._databases.lend())
            stage = stack.enter_context(closing(kind(url)))
            return Kept(stage, url, stack.pop_all().close)


@dataclass(slots=True)
class Kept:
    """A stage, its database, and how often it was used."""

    stage: Stage
    url: str
    close: Callable[[], None]
    uses: int = 0


@pytest.fixture(scope="module")
def stages(clocked_databases: Databases) -> Iterator[Stages]:
    """Closed with the module: elsewhere their sessions would only occupy connections of the server."""
    stages = Stages(clocked_databases)
    yield stages
    stages.close()


@pytest.fixture
def stage(stages: Stages) -> Iterator[Stage]:
    with stages.lend(Stage) as stage:
        yield stage


@pytest.fixture
def job_stage(stages: Stages) -> Iterator[JobStage]:
    with stages.lend(JobStage) as stage:
        yield stage
