"""Guards of postponing, from outside and by the task itself."""

from __future__ import annotations

from tests.explore.catching import Explored, Mutant
from tests.explore.mutants_code import mutant as code
from tests.explore.mutants_sql import by_test, mutant

MOVING = "'postponed', job_id, map_id, task"

POSTPONE: list[Mutant] = [
    mutant(
        "postpone-leaves-ready",
        "a postponed run can no longer be claimed",
        "delete from holdfast.ready using given where ready.run_id = given.run_id\n"
        "            returning ready.run_id, until, rank_at, number, excused, ord, queue, job_id, map_id, task",
        "select ready.run_id, until, rank_at, number, excused, ord, queue, job_id, map_id, task\n"
        "            from holdfast.ready, given where ready.run_id = given.run_id",
        by_test("test_postpone::test_postponed_run_is_claimed_only_after_its_time"),
        within=MOVING,
    ),
    mutant(
        "postpone-only-this-run",
        "only the run that was named is postponed",
        "from given where waiting.run_id = given.run_id",
        "from given",
        by_test("test_postpone::test_postponing_one_run_does_not_affect_others"),
        within=MOVING,
    ),
    mutant(
        "postpone-keeps-attempt",
        "a run that is postponed between two attempts keeps its number and what it spent",
        "select run_id, until, case when job_id is not null then rank_at end, number, excused,",
        "select run_id, until, case when job_id is not null then rank_at end, 1, 0,",
        by_test("test_postpone::test_run_that_is_postponed_after_a_failure_keeps_its_attempts"),
        within=MOVING,
    ),
    mutant(
        "postpone-keeps-blockers",
        "a run that waits for dependencies still says so",
        "case when blockers = 0 then 'postponed' else reason end",
        "'postponed'",
        by_test("test_postpone::test_postponed_run_with_dependencies_waits_for_both"),
        within=MOVING,
    ),
    code(
        "postpone-rounds",
        "a run that moves between two looks is looked for again",
        "ops.postpone",
        "ROUNDS = 10",
        "ROUNDS = 1",
        Explored("postpone+promote@due"),
    ),
    code(
        "postpone-running",
        "a run that runs is not called postponed",
        "ops.postpone",
        "        if run.status is not Status.PENDING:\n            raise RunEnded(",
        "        if run.status is not Status.PENDING:\n            return run\n        if not run:\n"
        "            raise RunEnded(",
        by_test("test_postpone::test_running_and_ended_runs_cannot_be_postponed"),
    ),
    code(
        "postpone-event",
        "an event records that a run was postponed",
        "ops.postpone",
        "            yield from events.postponed(run_id, by)\n",
        "            pass\n",
        Explored("postpone+claim@ready"),
    ),
    mutant(
        "postpone-event-position",
        "a postponement has its place among the events of its run",
        "events.type in ('FENCED', 'POSTPONED')",
        "events.type = 'FENCED'",
        by_test("test_postpone::test_events_and_why_show_when_and_by_whom_a_run_was_postponed"),
    ),
    code(
        "postpone-itself-excused",
        "a task that postpones its run uses up no attempt",
        "domain.settling",
        "delay=delay, excuse=True, ",
        "delay=delay, excuse=False, ",
        by_test("test_postpone::test_task_that_postpones_its_run_uses_up_no_attempt"),
    ),
    code(
        "postpone-itself-waits",
        "a run that its task postponed waits for its time",
        "domain.settling",
        "delay=delay, excuse=True, ",
        "excuse=True, ",
        by_test("test_postpone::test_task_that_postpones_its_run_uses_up_no_attempt"),
    ),
]
