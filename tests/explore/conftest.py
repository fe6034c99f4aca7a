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
        self._reusable: dict[type[Stage], ReusableStage] = {}

    @contextmanager
    def lend(self, kind: type[S]) -> Iterator[S]:
        reusable = self._reusable.pop(kind, None) or self._made(kind)
        assert isinstance(reusable.stage, kind)
        yield reusable.stage
        reusable.uses += 1
        if reusable.uses < USES and reusable.stage.settled and self._databases.clear(reusable.url):
            self._reusable[kind] = reusable
        else:
            reusable.close()

    def close(self) -> None:
        for reusable in self._reusable.values():
            reusable.close()

    def _made(self, kind: type[Stage]) -> ReusableStage:
        with ExitStack() as stack:
            url = stack.enter_context(self._databases.lend())
            stage = stack.enter_context(closing(kind(url)))
            return ReusableStage(stage, url, stack.pop_all().close)


@dataclass(slots=True)
class ReusableStage:
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
