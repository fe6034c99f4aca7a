"""Exploring takes minutes; by default a slice of it runs. `--explore=full` plays every schedule there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import psycopg
import pytest

from holdfast.testing import clock
from holdfast.testing.explorer.stage import Stage

COUNTS = "explored"


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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    total: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, counts in getattr(report, "user_properties", ()):
                if name == COUNTS and getattr(report, "when", "") == "call":
                    total.update(counts)
    if total:
        terminalreporter.write_line(
            f"explored: {total['pairs']} pairs in {total['meetings']} situations, {total['schedules']} schedules "
            f"({total['crashes']} with a crash, {total['waits']} with a wait), {total['transients']} deadlocks and "
            f"refused locks; {total['as_expected']} of {total['formulas']} counts agree with the closed formula; "
            f"{total['violations']} violations"
        )
