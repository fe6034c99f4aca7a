"""Guards of writes about attempts that another process executes: the writer does not hold their lease."""

from __future__ import annotations

from tests.explore.catching import Explored, Mutant
from tests.explore.mutants_sql import by_test, mutant

NOTING = "jsonb_build_object('log_copied', %(copied)s::integer)"

NOTES: list[Mutant] = [
    mutant(
        "note-once",
        "lines of a job are copied once, however many workers copy them",
        "and coalesce((leases.details->>'log_copied')::integer, 0) = %(before)s",
        "and %(before)s is not null",
        Explored("note_late+note_late@remote"),
        within=NOTING,
    ),
    mutant(
        "note-job",
        "what is noted about one job is not noted about another of the same attempt",
        "and leases.details->>'ray_submission_id' = %(submission_id)s",
        "and %(submission_id)s is not null",
        by_test("test_remote_attempts::test_nothing_is_recorded_about_another_job_or_an_ended_attempt"),
        within=NOTING,
    ),
    mutant(
        "over-known",
        "only jobs of runs in this database are stopped: a cluster may serve several",
        "join holdfast.runs on runs.id = given.run_id",
        "",
        by_test("test_remote_attempts::test_ended_attempts_are_returned_and_those_of_unknown_runs_are_not"),
    ),
    mutant(
        "over-number",
        "an earlier attempt is over although a later one of its run has a lease",
        "\n                          where leases.run_id = given.run_id and leases.number = given.number)",
        "\n                          where leases.run_id = given.run_id)",
        Explored("claim+over@lost"),
    ),
    mutant(
        "over-lease",
        "a job whose attempt still has its lease is not stopped",
        "where not exists (select from holdfast.leases\n",
        "where true or not exists (select from holdfast.leases\n",
        Explored("renew+over@remote"),
    ),
]

LOOKING = "jsonb_build_object('looked_at', holdfast.now())"

LOOKS: list[Mutant] = [
    mutant(
        "look-once",
        "an attempt is looked after by one worker at a time",
        "and coalesce((leases.details->>'looked_at')::timestamptz, '-infinity')\n"
        "                  < holdfast.now() - %(every)s * interval '1 second'",
        "and %(every)s::float8 is not null",
        Explored("look_after+look_after@remote"),
        within=LOOKING,
    ),
    mutant(
        "look-taken-over",
        "an attempt that no job has taken over is left to its worker",
        "where leases.claimed_by is not null and leases",
        "where leases",
        Explored("renew+look_after@described"),
        within=LOOKING,
    ),
    mutant(
        "look-skips-locked",
        "a worker that looks does not wait for those that write",
        "for no key update skip locked",
        "for no key update",
        Explored("succeed+look_after@remote"),
        within=LOOKING,
    ),
    mutant(
        "look-keeps-details",
        "a look leaves what is known about the attempt",
        "(leases.details::jsonb || jsonb_build_object('looked_at', holdfast.now()))::json",
        "jsonb_build_object('looked_at', holdfast.now())::json",
        Explored("succeed+look_after@remote"),
        within=LOOKING,
    ),
    mutant(
        "look-address",
        "attempts on other clusters are left alone",
        "and leases.details->>'ray_address' = %(address)s",
        "and %(address)s::text is not null",
        by_test("test_remote_attempts::test_attempts_on_other_clusters_are_ignored"),
        within=LOOKING,
    ),
    mutant(
        "note-keeps-details",
        "a note leaves what is known about the attempt",
        "(leases.details::jsonb || %(details)s::jsonb\n",
        "(%(details)s::jsonb\n",
        Explored("succeed+note_late@remote"),
        within=NOTING,
    ),
]
