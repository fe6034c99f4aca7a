"""Every guard is needed: if one is removed, a test or the explorer detects it."""

from __future__ import annotations

import pytest

from holdfast.testing.databases import scratch
from tests.explore import (
    mutants_code,
    mutants_counting,
    mutants_hand_over,
    mutants_keys,
    mutants_locked,
    mutants_postpone,
    mutants_release,
    mutants_remote,
    mutants_schema,
    mutants_sides,
    mutants_sql,
    mutants_take_over,
)
from tests.explore.catching import ByTest, Explored, Mutant, install_clock
from tests.explorer import mutation
from tests.explorer.stage import BATCH

GROUPS: dict[str, list[Mutant]] = {
    f"{module.__name__.rpartition('.')[2]}.{name}": value
    for module in (
        mutants_sql,
        mutants_release,
        mutants_take_over,
        mutants_remote,
        mutants_hand_over,
        mutants_counting,
        mutants_locked,
        mutants_postpone,
        mutants_keys,
        mutants_code,
        mutants_schema,
        mutants_sides,
    )
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, list)
}
MUTANTS = [mutant for group in GROUPS.values() for mutant in group]


def names(mutant: Mutant) -> str:
    return mutant.mutation.name


def test_mutants_are_numerous_and_distinct() -> None:
    assert len(MUTANTS) >= 40
    assert len({mutant.mutation.name for mutant in MUTANTS}) == len(MUTANTS)
    assert all(mutant.mutation.guard for mutant in MUTANTS)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.mutation.where != mutation.SCHEMA], ids=names)
def test_missing_guard_of_the_code_is_detected(mutant: Mutant, stage_url: str) -> None:
    assert mutant.complaints(stage_url), f"nothing noticed that this was gone: {mutant.mutation.guard}"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.mutation.where == mutation.SCHEMA], ids=names)
def test_missing_guard_of_the_schema_is_detected(mutant: Mutant, server_url: str) -> None:
    with scratch(server_url) as url:
        mutation.migrate(url, mutant.mutation)
        if isinstance(mutant.caught_by, Explored):
            install_clock(url)
        assert mutant.complaints(url), f"nothing noticed that this was gone: {mutant.mutation.guard}"


# Tests of workers take seconds, and run separately anyway.
NAMED = {m.caught_by for group, of in GROUPS.items() if group != "mutants_sides.WORKERS" for m in of}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("catcher", sorted((one for one in NAMED if isinstance(one, ByTest)), key=str), ids=str)
def test_named_tests_pass_without_a_mutation(catcher: ByTest, database_url: str) -> None:
    assert catcher.complaints(database_url, str) == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("meeting", "at_most"),
    sorted({(m.caught_by.meeting, m.caught_by.at_most) for m in MUTANTS if isinstance(m.caught_by, Explored)}),
)
def test_explorer_reports_nothing_without_a_mutation(meeting: str, at_most: int, stage_url: str) -> None:
    assert Explored(meeting, at_most=at_most).complaints(stage_url, str, BATCH) == []
