"""Guards of writes about attempts that another process executes: the writer does not hold their lease."""

from __future__ import annotations

from tests.explore.catching import Mutant
from tests.explore.mutants_sql import by_test, mutant

NOTING = "jsonb_build_object('log_copied', %(copied)s::integer)"

NOTES: list[Mutant] = [
    mutant(
        "note-once",
        "lines of a job are copied once, however many workers copy them",
        "and coalesce((leases.details->>'log_copied')::integer, 0) = %(before)s",
        "and %(before)s is not null",
        by_test("test_remote_attempts::test_lines_that_two_workers_copy_at_once_are_added_once"),
        within=NOTING,
    ),
    mutant(
        "note-job",
        "what is noted about one job is not noted about another of the same attempt",
        "and leases.details->>'ray_submission_id' = %(submission_id)s",
        "and %(submission_id)s is not null",
        by_test("test_remote_attempts::test_nothing_is_noted_about_another_job_or_an_attempt_that_ended"),
        within=NOTING,
    ),
    mutant(
        "over-known",
        "only jobs of runs in this database are stopped: a cluster may serve several",
        "join holdfast.runs on runs.id = given.run_id",
        "",
        by_test("test_remote_attempts::test_attempts_that_ended_are_over_and_those_of_unknown_runs_are_not"),
    ),
]
