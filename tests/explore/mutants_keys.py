"""Guards of requests, of reopening and of retention."""

from __future__ import annotations

from tests.explore.catching import Explored
from tests.explore.mutants_sql import by_test, mutant

KEYS = [
    mutant(
        "key-unexpired",
        "a key that has not expired is not given up, whatever became of its run",
        "and run_id = %(run_id)s::uuid and expires_at <= holdfast.now()",
        "and run_id = %(run_id)s::uuid",
        by_test("test_keys::test_expired_key_is_free_once_its_run_is_gone", payload=1),
    ),
    mutant(
        "key-expired",
        "a key that has expired is free again once its run is gone",
        "and run_id = %(run_id)s::uuid and expires_at <= holdfast.now()",
        "and false",
        by_test("test_keys::test_expired_key_is_free_once_its_run_is_gone", payload=2),
    ),
    mutant(
        "key-of-a-job",
        "a key that made a job is not given up while the job is there",
        "          and not exists (select from holdfast.jobs where jobs.id = idempotency_keys.run_id)\n",
        "",
        by_test("test_keys::test_expired_key_of_a_job_creates_no_run"),
    ),
    mutant(
        "key-scope",
        "a key belongs to whom it was given to",
        "where scope = %(scope)s and key = %(key)s",
        "where key = %(key)s",
        by_test("test_keys::test_key_conflict_reveals_nothing_about_another_scope"),
    ),
    mutant(
        "keyed-run-needs-its-key",
        "key and run are written together: no run where the key is taken",
        "join key on key.run_id = given.id on conflict (id) do nothing",
        "on conflict (id) do nothing",
        by_test("test_keys::test_key_applies_to_a_scheduled_run"),
    ),
    mutant(
        "submit-same-id",
        "asking again with the same id finds the run",
        "on conflict (id) do nothing \n",
        "\n",
        Explored("submit+submit@fresh"),
    ),
    mutant(
        "submit-many-same-ids",
        "asking again with the same ids finds the runs",
        "on conflict (id) do nothing returning id, created_at, run_after, priority, queue)",
        "returning id, created_at, run_after, priority, queue)",
        by_test("test_submit::test_repeated_submit_many_finds_the_same_runs"),
    ),
    mutant(
        "expire-keys",
        "only keys past their time are cleaned up",
        "where keys.expires_at <= holdfast.now()\n                  and not exists",
        "where not exists",
        by_test("test_keys::test_only_expired_keys_of_pruned_runs_are_removed"),
    ),
    mutant(
        "expire-keys-of-runs",
        "a key is kept while its run is there",
        "and not exists (select from holdfast.runs where runs.id = keys.run_id)",
        "",
        by_test("test_keys::test_only_expired_keys_of_pruned_runs_are_removed"),
    ),
    mutant(
        "expire-keys-of-jobs",
        "a key is kept while its job is open or has runs",
        "(jobs.finished_at is null\n"
        "                                       or exists (select from holdfast.runs where runs.id\n"
        "                                                  between holdfast.job_floor(jobs.id)\n"
        "                                                      and holdfast.job_ceiling(jobs.id)))",
        "false",
        by_test("test_keys::test_key_of_a_job_with_runs_is_kept"),
    ),
]

DEDUPE = [
    mutant(
        "dedupe-lock",
        "two requests with one payload decide one after the other",
        "from pg_advisory_xact_lock(hashtextextended(%(task)s || ' ' || %(payload_hash)s, 7))",
        "where %(task)s || %(payload_hash)s <> ''",
        Explored("submit_dedupe+submit_dedupe@fresh"),
    ),
    mutant(
        "dedupe-stopping",
        "dedupe does not return a run that is being cancelled",
        "and leases.cancel_requested_at is null",
        "",
        by_test("test_dedupe::test_dedupe_does_not_find_a_run_with_a_cancel_request"),
    ),
    mutant(
        "dedupe-window",
        "an active run is found only within its window",
        "and runs.created_at > holdfast.now() - %(within)s::interval\n          and (exists",
        "and %(within)s::interval is not null\n          and (exists",
        by_test("test_dedupe::test_active_dedupe_finds_no_run_older_than_its_window"),
    ),
    mutant(
        "dedupe-task",
        "the same payload of another task is another request",
        "and runs.task = %(task)s and",
        "and %(task)s <> '' and",
        by_test("test_dedupe::test_dedupe_distinguishes_payloads_and_tasks"),
        within="from holdfast.ready where ready.run_id = runs.id",
    ),
    mutant(
        "dedupe-takes-part",
        "a run submitted with dedupe off is not found",
        "and runs.deduplicates\n",
        "\n",
        by_test("test_dedupe::test_a_run_submitted_with_dedupe_off_is_not_found"),
        within="from holdfast.ready where ready.run_id = runs.id",
    ),
    mutant(
        "dedupe-off-is-written",
        "a run says that it does not take part",
        "%(traceparent)s, %(deduplicates)s\n",
        "%(traceparent)s, true or %(deduplicates)s\n",
        by_test("test_dedupe::test_a_run_submitted_with_dedupe_off_is_not_found"),
    ),
    mutant(
        "dedupe-waiting",
        "a run that waits is active",
        "or exists (select from holdfast.waiting where waiting.run_id = runs.id)",
        "",
        by_test("test_dedupe::test_dedupe_finds_a_waiting_run"),
    ),
    mutant(
        "dedupe-failed",
        "a failure is not the answer to a new request",
        "and not exists (select from holdfast.attempts where attempts.run_id = runs.id\n"
        "                          and attempts.outcome in ('FAILED', 'CANCELLED') and attempts.reopened_at is null)",
        "",
        by_test("test_dedupe::test_dedupe_window_does_not_find_a_failed_or_cancelled_run", ending="FAILED"),
    ),
    mutant(
        "dedupe-reopened",
        "what was reopened has not failed",
        "and attempts.outcome in ('FAILED', 'CANCELLED') and attempts.reopened_at is null)",
        "and attempts.outcome in ('FAILED', 'CANCELLED'))",
        by_test("test_dedupe::test_dedupe_window_finds_a_reopened_run"),
    ),
]

REOPEN = [
    mutant(
        "reopen-success",
        "a success is final",
        "and outcome in ('FAILED', 'CANCELLED')\n",
        "and outcome is not null\n",
        by_test("test_retry::test_succeeded_run_is_final"),
    ),
    mutant(
        "reopen-once",
        "an ending that was taken back is not taken back again",
        "and attempts.reopened_at is null\n",
        "\n",
        by_test("test_retry::test_run_can_be_cancelled_and_retried_repeatedly"),
        within="reopened_by = %(by)s",
    ),
    mutant(
        "result-in-force",
        "a result is that of the success",
        "where run_id = %(run_id)s::uuid and outcome = 'SUCCEEDED' and reopened_at is null",
        "where run_id = %(run_id)s::uuid and outcome is not null order by number",
        by_test("test_retry::test_result_of_a_retried_run_is_that_of_its_success"),
    ),
]

RETENTION = [
    mutant(
        "strays-live",
        "a live run is not forgotten",
        "and not exists (select from holdfast.ready where ready.run_id = runs.id)\n",
        "\n",
        by_test("test_prune::test_runs_outside_every_month_are_deleted_one_by_one"),
        within="delete from holdfast.runs_default",
    ),
    mutant(
        "strays-key",
        "a run of a key that has not expired is not forgotten",
        "and not exists (select from holdfast.idempotency_keys as keys\n"
        "                                  where keys.run_id = runs.id and keys.expires_at > holdfast.now())",
        "",
        by_test("test_prune::test_run_outside_every_month_with_a_key_is_kept"),
    ),
    mutant(
        "strays-job",
        "a run of an open job is not forgotten",
        "and not exists (select from holdfast.jobs where jobs.id = runs.job_id and jobs.finished_at is null)",
        "",
        by_test("test_prune_leftovers::test_run_outside_every_month_of_an_open_job_is_kept"),
    ),
    mutant(
        "strays-awaited",
        "a run that a waiting run depends on is not forgotten",
        "where dependencies.on_id = any(array[runs.id, runs.map_id])",
        "where false",
        by_test("test_prune_leftovers::test_run_outside_every_month_that_another_waits_for_is_kept"),
    ),
    mutant(
        "retry-undecidable",
        "a run that never started does not start once what it depends on was pruned",
        "and dependencies.policy <> 'always'\n",
        "and false\n",
        by_test("test_prune_leftovers::test_run_that_never_started_is_not_retried_after_its_dependency_was_pruned"),
        within="dependencies.on_id = any(%(gone)s::uuid[])",
    ),
    mutant(
        "strays-age",
        "what is within the retention is not forgotten",
        "where runs.created_at < holdfast.now() - %(older_than)s::interval",
        "where %(older_than)s::interval is not null",
        by_test("test_prune::test_runs_outside_every_month_are_deleted_one_by_one"),
    ),
]
