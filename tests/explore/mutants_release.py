"""Guards of claims by task, and of claims that are released because they never started."""

from __future__ import annotations

from tests.explore.catching import Mutant
from tests.explore.mutants_sql import ALIVE, HELD, by_test, mutant

RELEASING = "given (run_id, number, rank_at)"

RELEASE: list[Mutant] = [
    mutant(
        "release-number",
        "a release names its attempt: one that lost its answer must not give a later attempt back",
        "and leases.number = given.number",
        "",
        by_test("test_release::test_release_of_an_earlier_attempt_is_rejected"),
        within=RELEASING,
    ),
    mutant(
        "release-worker",
        "only the worker that holds a run gives it back",
        HELD,
        "",
        by_test("test_release::test_another_worker_cannot_release_a_run"),
        within=RELEASING,
    ),
    mutant(
        "release-expiry",
        "a worker whose lease has passed gives nothing back: the run may be elsewhere by now",
        ALIVE,
        "workers.id = %(worker_id)s::uuid",
        by_test("test_release::test_expired_worker_releases_nothing"),
        within=RELEASING,
    ),
    mutant(
        "release-cancelled",
        "a run with a cancel request does not return to its queue",
        "and leases.cancel_requested_at is null",
        "",
        by_test("test_release::test_released_run_with_a_cancel_request_ends"),
        within=RELEASING,
    ),
    mutant(
        "release-place",
        "a run that was not begun keeps its place in the queue",
        "coalesce(given.rank_at, leases.claimed_at)",
        "holdfast.now()",
        by_test("test_release::test_released_run_keeps_its_position_in_the_queue"),
    ),
    mutant(
        "settled-by-the-dead",
        "a worker whose lease has passed cannot say that it settled everything",
        "case when %(settled)s and expires_at > holdfast.now() then",
        "case when %(settled)s then",
        by_test("test_release::test_expired_worker_cannot_report_that_it_settled_everything"),
    ),
    mutant(
        "orphan-begun",
        "only what a worker left behind after it had settled everything was never begun",
        "not exists (select from holdfast.workers\n"
        "                           where workers.id = leases.worker_id and workers.settled_at is not null)",
        "true",
        by_test("test_release::test_run_not_started_by_a_stopped_worker_returns_without_an_attempt"),
    ),
]

TASKS: list[Mutant] = [
    mutant(
        "claim-known-tasks",
        "a worker claims only tasks that it knows",
        "and ready.task = known.task",
        "",
        by_test("test_claim::test_worker_claims_only_runs_of_its_registered_tasks"),
    ),
    mutant(
        "claim-one-known-task",
        "a run that a worker is given by its id must be of a task that it knows",
        "and ready.task = any(%(tasks)s::text[])",
        "",
        by_test("test_claim::test_worker_claims_only_runs_of_its_registered_tasks"),
    ),
    mutant(
        "claim-merged-order",
        "runs of several tasks are claimed in one order",
        "order by of_task.ord, of_task.rank_at, of_task.run_id",
        "order by of_task.run_id desc",
        by_test("test_claim::test_runs_of_several_tasks_are_claimed_in_one_order"),
    ),
]
