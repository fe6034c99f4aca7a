"""Guards of requests, of reopening and of retention."""

from __future__ import annotations

from tests.explore.catching import Explored
from tests.explore.mutants_sql import mutant, told

KEYS = [
    mutant(
        "key-unexpired",
        "a key that has not expired is not given up, whatever became of its run",
        "and run_id = %(run_id)s::uuid and expires_at <= holdfast.now()",
        "and run_id = %(run_id)s::uuid",
        told("test_keys::test_a_key_past_its_time_is_free_once_its_run_is_gone", payload=1),
    ),
    mutant(
        "key-expired",
        "a key that has expired is free again once its run is gone",
        "and run_id = %(run_id)s::uuid and expires_at <= holdfast.now()",
        "and false",
        told("test_keys::test_a_key_past_its_time_is_free_once_its_run_is_gone", payload=2),
    ),
    mutant(
        "key-of-a-job",
        "a key that made a job is not given up while the job is there",
        "              and not exists (select from holdfast.jobs where jobs.id = idempotency_keys.run_id)\n",
        "",
        told("test_keys::test_a_key_past_its_time_that_made_a_job_makes_no_run"),
    ),
    mutant(
        "key-scope",
        "a key belongs to whom it was given to",
        "where scope = %(scope)s and key = %(key)s",
        "where key = %(key)s",
        told("test_keys::test_scopes_do_not_share_what_they_find"),
    ),
    mutant(
        "keyed-run-needs-its-key",
        "key and run are written together: no run where the key is taken",
        "join key on key.run_id = told.id on conflict (id) do nothing",
        "on conflict (id) do nothing",
        told("test_keys::test_a_key_holds_for_a_run_that_is_put_off"),
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
        told("test_submit::test_many_that_are_asked_for_again_are_found"),
    ),
    mutant(
        "expire-keys",
        "only keys past their time are cleaned up",
        "where keys.expires_at <= holdfast.now()\n                  and not exists",
        "where not exists",
        told("test_keys::test_only_expired_keys_of_pruned_runs_are_cleaned_up"),
    ),
    mutant(
        "expire-keys-of-runs",
        "a key is kept while its run is there",
        "and not exists (select from holdfast.runs where runs.id = keys.run_id)",
        "",
        told("test_keys::test_only_expired_keys_of_pruned_runs_are_cleaned_up"),
    ),
    mutant(
        "expire-keys-of-jobs",
        "a key is kept while its job is open or has runs",
        "(jobs.finished_at is null\n"
        "                                       or exists (select from holdfast.runs where runs.id\n"
        "                                                  between holdfast.job_floor(jobs.id)\n"
        "                                                      and holdfast.job_ceiling(jobs.id)))",
        "false",
        told("test_keys::test_a_key_of_a_job_with_runs_is_kept"),
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
        "a run that was asked to stop is not the answer to a new request",
        "and leases.cancel_requested_at is null",
        "",
        told("test_dedupe::test_a_run_that_was_asked_to_stop_is_not_found"),
    ),
    mutant(
        "dedupe-window",
        "an active run is found only within its window",
        "and runs.created_at > holdfast.now() - %(within)s::interval\n          and (exists",
        "and %(within)s::interval is not null\n          and (exists",
        told("test_dedupe::test_active_is_bounded_by_its_window"),
    ),
    mutant(
        "dedupe-task",
        "the same payload of another task is another request",
        "and runs.task = %(task)s and",
        "and %(task)s <> '' and",
        told("test_dedupe::test_another_payload_or_task_is_not_the_same"),
        within="from holdfast.ready where ready.run_id = runs.id",
    ),
    mutant(
        "dedupe-takes-part",
        "a run submitted with dedupe off is not found",
        "and runs.deduplicates\n",
        "\n",
        told("test_dedupe::test_a_run_submitted_with_dedupe_off_is_not_found"),
        within="from holdfast.ready where ready.run_id = runs.id",
    ),
    mutant(
        "dedupe-off-is-written",
        "a run says that it does not take part",
        "%(traceparent)s, %(deduplicates)s\n",
        "%(traceparent)s, true or %(deduplicates)s\n",
        told("test_dedupe::test_a_run_submitted_with_dedupe_off_is_not_found"),
    ),
    mutant(
        "dedupe-waiting",
        "a run that waits is active",
        "or exists (select from holdfast.waiting where waiting.run_id = runs.id)",
        "",
        told("test_dedupe::test_a_run_that_waits_is_found"),
    ),
    mutant(
        "dedupe-failed",
        "a failure is not the answer to a new request",
        "and not exists (select from holdfast.attempts where attempts.run_id = runs.id\n"
        "                          and attempts.outcome in ('FAILED', 'CANCELLED') and attempts.reopened_at is null)",
        "",
        told("test_dedupe::test_a_window_finds_no_failure", ending="FAILED"),
    ),
    mutant(
        "dedupe-reopened",
        "what was reopened has not failed",
        "and attempts.outcome in ('FAILED', 'CANCELLED') and attempts.reopened_at is null)",
        "and attempts.outcome in ('FAILED', 'CANCELLED'))",
        told("test_dedupe::test_a_window_finds_what_was_reopened"),
    ),
]

REOPEN = [
    mutant(
        "reopen-success",
        "a success is final",
        "and outcome in ('FAILED', 'CANCELLED')\n",
        "and outcome is not null\n",
        told("test_retry::test_a_success_is_final"),
    ),
    mutant(
        "reopen-once",
        "an ending that was taken back is not taken back again",
        "and attempts.reopened_at is null\n",
        "\n",
        told("test_retry::test_a_run_can_be_cancelled_and_retried_again_and_again"),
        within="reopened_by = %(by)s",
    ),
    mutant(
        "result-in-force",
        "a result is that of the success",
        "where run_id = %(run_id)s::uuid and outcome = 'SUCCEEDED' and reopened_at is null",
        "where run_id = %(run_id)s::uuid and outcome is not null order by number",
        told("test_retry::test_the_result_is_that_of_the_success"),
    ),
]

RETENTION = [
    mutant(
        "strays-live",
        "a live run is not forgotten",
        "and not exists (select from holdfast.ready where ready.run_id = runs.id)\n",
        "\n",
        told("test_prune::test_runs_outside_every_month_go_one_by_one"),
        within="delete from holdfast.runs_default",
    ),
    mutant(
        "strays-key",
        "a run of a key that has not expired is not forgotten",
        "and not exists (select from holdfast.idempotency_keys as keys\n"
        "                                  where keys.run_id = runs.id and keys.expires_at > holdfast.now())",
        "",
        told("test_prune::test_a_stray_with_a_key_stays"),
    ),
    mutant(
        "strays-job",
        "a run of an open job is not forgotten",
        "and not exists (select from holdfast.jobs where jobs.id = runs.job_id and jobs.finished_at is null)",
        "",
        told("test_prune_leftovers::test_a_stray_of_an_open_job_stays"),
    ),
    mutant(
        "strays-awaited",
        "a run that a waiting run depends on is not forgotten",
        "where dependencies.on_id = any(array[runs.id, runs.map_id])",
        "where false",
        told("test_prune_leftovers::test_a_stray_that_a_waiting_run_depends_on_stays"),
    ),
    mutant(
        "retry-undecidable",
        "a run that never started does not start once what it depends on was pruned",
        "and dependencies.policy <> 'always'\n",
        "and false\n",
        told("test_prune_leftovers::test_a_run_that_never_started_is_not_retried_once_what_it_depends_on_was_pruned"),
        within="dependencies.on_id = any(%(gone)s::uuid[])",
    ),
    mutant(
        "strays-age",
        "what is within the retention is not forgotten",
        "where runs.created_at < holdfast.now() - %(older_than)s::interval",
        "where %(older_than)s::interval is not null",
        told("test_prune::test_runs_outside_every_month_go_one_by_one"),
    ),
]
