"""Guards for locks of other transactions: results that would wait, late starts, and runs without a task."""

from __future__ import annotations

from tests.explore.catching import Explored, Mutant
from tests.explore.mutants_release import RELEASING
from tests.explore.mutants_sql import by_test, mutant

BLOCKED, LATE, NAMING = "free_lease", "from holdfast.late_starts", "unnamed as ("
FOUND = "test_locked::test_blocked_run_is_found_without_waiting"

FINDING: list[Mutant] = [
    mutant(
        "blocked-lease",
        "an ending whose lease is locked would wait",
        "requested.run_id not in (select run_id from free_lease)",
        "false",
        by_test(FOUND, what="lease"),
        within=BLOCKED,
    ),
    mutant(
        "blocked-job",
        "an ending whose job is locked would wait",
        "(requested.job_id is not null and requested.job_id not in (select id from free_job))",
        "false",
        by_test(FOUND, what="job"),
        within=BLOCKED,
    ),
    mutant(
        "blocked-map",
        "an ending whose map is locked would wait",
        "or (requested.map_id is not null and requested.map_id not in (select id from free_map))",
        "",
        by_test(FOUND, what="map"),
        within=BLOCKED,
    ),
    mutant(
        "blocked-dependent",
        "an ending that another run waits for would wait if that run is locked",
        "and dependent.run_id not in (select run_id from free_dependent)",
        "and false",
        by_test(FOUND, what="dependent"),
        within=BLOCKED,
    ),
    mutant(
        "blocked-dependent-of-map",
        "so would one whose map another run waits for",
        "dependencies.on_id in (requested.run_id, requested.map_id)",
        "dependencies.on_id = requested.run_id",
        by_test(FOUND, what="dependent of the map"),
        within=BLOCKED,
    ),
    mutant(
        "blocked-others",
        "only the runs whose own dependents are locked would wait",
        "where dependent.on_id = requested.run_id\n                              and",
        "where",
        by_test(FOUND, what="dependent"),
        within=BLOCKED,
    ),
    *(
        mutant(
            f"blocked-{what}-waits",
            f"finding out whether a {what} is locked does not wait for it",
            f"{selected} for update skip locked",
            f"{selected} for update",
            by_test(FOUND, what=what),
            within=BLOCKED,
        )
        for what, selected in {
            "lease": "from holdfast.leases where run_id = any(%(run_ids)s::uuid[])",
            "job": "from holdfast.jobs where id in (select job_id from requested)",
            "map": "from holdfast.maps where id in (select map_id from requested)",
            "dependent": "from holdfast.waiting where run_id in (select run_id from dependent)",
        }.items()
    ),
]

STARTING: list[Mutant] = [
    mutant(
        "late-start-note",
        "the note of a job that is still locked stays",
        "where job_id in (select id from held)",
        "where job_id in (select job_id from noted)",
        by_test("test_locked::test_job_locked_during_its_first_claim_starts_at_the_time_of_that_claim"),
        within=LATE,
    ),
    mutant(
        "late-start-time",
        "a job that starts late has the time of its first claim",
        "set started_at = noted.at",
        "set started_at = holdfast.now()",
        by_test("test_locked::test_job_locked_during_its_first_claim_starts_at_the_time_of_that_claim"),
        within=LATE,
    ),
    mutant(
        "late-start-again",
        "a job that has started does not start again",
        "where jobs.id = held.id and jobs.started_at is null",
        "where jobs.id = held.id",
        by_test("test_locked::test_late_start_does_not_change_a_started_job"),
        within=LATE,
    ),
    mutant(
        "late-start-gone",
        "the note of a job that is gone does not stay for ever",
        "and not exists (select from holdfast.jobs where jobs.id = late_starts.job_id)",
        "and false",
        by_test("test_locked::test_late_start_of_a_deleted_job_is_removed"),
        within=LATE,
    ),
]

NAMES: list[Mutant] = [
    mutant(
        "name-tasks-job",
        "a run that is named stays in its job and map",
        "ord, queue, job_id, map_id\n        ), named",
        "ord, queue, null::uuid, null::uuid\n        ), named",
        by_test("test_locked::test_adding_the_task_to_a_ready_run_keeps_its_other_columns"),
        within=NAMING,
    ),
    mutant(
        "name-tasks-place",
        "a run that is named keeps its number and its place",
        "returning run_id, rank_at, number, excused, ord,",
        "returning run_id, rank_at, number, 0, 0::smallint,",
        by_test("test_locked::test_adding_the_task_to_a_ready_run_keeps_its_other_columns"),
        within=NAMING,
    ),
    mutant(
        "name-tasks-waits",
        "naming waits for nothing",
        "for update skip locked",
        "for update",
        Explored("cancel+name_tasks@unnamed"),
        within=NAMING,
    ),
]

GIVING_BACK: list[Mutant] = [
    mutant(
        f"release-{name}",
        f"a released run keeps its {kept}",
        old,
        new,
        by_test("test_locked::test_released_run_keeps_priority_excused_attempts_and_job"),
        within=RELEASING,
    )
    for name, kept, old, new in [
        ("priority", "priority", "gone.excused, -runs.priority,", "gone.excused, 0::smallint,"),
        ("excused", "excuses", "gone.number, gone.excused, -runs", "gone.number, 0, -runs"),
        ("job", "job", "runs.queue, gone.job_id,", "runs.queue, null::uuid,"),
    ]
]
