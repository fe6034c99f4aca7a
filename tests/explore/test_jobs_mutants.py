"""Guards of jobs, each removed in turn: the explorer detects every one of them."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path

import psycopg
import pytest

from holdfast import sql
from holdfast.testing.databases import scratch
from tests.explore.catching import install_clock
from tests.explore.jobs_stage import JobStage
from tests.explore.mutants_jobs import JOBS
from tests.explore.mutants_jobs_keys import KEYED
from tests.explore.mutants_jobs_more import EQUIVALENT, OWN, SURVIVORS
from tests.explorer import search
from tests.explorer.mutation import SCHEMA, SQL, Mutation, Rewriting, migrate, mutated
from tests.explorer.schedule import parse
from tests.explorer.stage import Crashes, Violation
from tests.explorer.wire import unchanged

AT_MOST = 400

MUTANTS = {
    name: (Mutation(name, guard, where, old, new), parse(f"{met}:").meeting)
    for name, guard, where, old, new, met in [*JOBS, *SURVIVORS, *OWN, *KEYED]
}


def test_job_mutants_are_distinct() -> None:
    assert len(MUTANTS) == len(JOBS) + len(SURVIVORS) + len(OWN) + len(KEYED)


@pytest.mark.parametrize("name", EQUIVALENT)
def test_lock_listed_as_unneeded_still_exists(name: str) -> None:
    text, reason = EQUIVALENT[name]
    assert reason
    assert any(text in path.read_text() for path in Path(sql.__path__[0]).glob("*.py"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MUTANTS)
def test_missing_guard_of_jobs_is_detected(stage_url: str, server_url: str, name: str) -> None:
    mutation, meeting = MUTANTS[name]
    rewriting = Rewriting(mutation) if mutation.where == SQL else unchanged
    with ExitStack() as stack:
        if mutation.where == SCHEMA:
            stage_url = stack.enter_context(scratch(server_url))
            migrate(stage_url, mutation)
            install_clock(stage_url)
        elif mutation.where != SQL:
            stack.enter_context(mutated(mutation))
        stage = JobStage(stage_url, rewriting, batch=4)
        try:
            plays = partial(stage.play, meeting, Crashes.NONE)
            for _ in islice(search.sampled(plays, name, AT_MOST, 1), AT_MOST):
                if stage.violations:
                    break
            stage.judge()
        except psycopg.Error as error:
            stage.violations.append(Violation(str(meeting), "the database refuses", str(error)))
        finally:
            stage.close()
    if isinstance(rewriting, Rewriting):
        assert rewriting.changed, f"no statement had\n{mutation.old}"
    assert stage.violations, f"it was not detected that {mutation.guard} no longer holds"
