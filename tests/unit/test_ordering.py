"""Each process of a test run begins with long tests."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.ordering import LONGEST, ordered

ROOT = Path(__file__).parents[2]
FIRST, SECOND, THIRD = (f"{name}::test" for name in LONGEST[:3])
SHORT = [f"tests/unit/test_short.py::test_{number}" for number in range(7)]


def order(names: list[str], processes: int) -> list[str]:
    return [item.nodeid for item in ordered([SimpleNamespace(nodeid=name) for name in names], processes)]


@pytest.mark.parametrize("name", LONGEST)
def test_listed_folder_or_file_exists(name: str) -> None:
    assert (ROOT / name).exists()


def test_each_process_begins_with_long_tests() -> None:
    found = order([*SHORT, THIRD, SECOND, FIRST], 2)
    assert found == [FIRST, THIRD, *SHORT[:3], SECOND, *SHORT[3:]]


def test_without_processes_long_tests_come_first() -> None:
    assert order([*SHORT, SECOND, FIRST], 1) == [FIRST, SECOND, *SHORT]


@pytest.mark.parametrize("processes", [1, 2, 4, 8])
def test_every_test_is_kept_once(processes: int) -> None:
    for names in ([], [FIRST], SHORT, [FIRST, SECOND, THIRD], [*SHORT, FIRST, SECOND, THIRD]):
        assert sorted(order(names, processes)) == sorted(names)
