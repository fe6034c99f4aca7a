"""Guards in statements: conditions that recheck what a decision relied on."""

from __future__ import annotations

from typing import Any

from tests.explore.catching import ByTest, Explored, Mutant
from tests.explorer.mutation import SQL, Mutation

SUCCEEDING = "given (run_id, number, result, elapsed)"
SETTLING = "given (run_id, number, status, outcome"
HELD = "and leases.worker_id = %(worker_id)s::uuid"
ALIVE = "workers.id = %(worker_id)s::uuid and workers.expires_at > holdfast.now()"


def by_test(test: str, **arguments: Any) -> ByTest:
    return ByTest(f"tests.conformance.{test}", tuple(arguments.items()))


def mutant(name: str, guard: str, old: str, new: str, caught_by: Explored | ByTest, *, within: str = "") -> Mutant:
    return Mutant(Mutation(name, guard, SQL, old, new, within), caught_by)


FENCE = [
    mutant(
        "succeed-number",
        "a success names its attempt: a worker that was given the run again must not end it with its older attempt",
        "and leases.number = given.number",
        "",
        by_test("test_finish::test_finish_of_an_earlier_attempt_is_rejected"),
        within=SUCCEEDING,
    ),
    mutant(
        "succeed-worker",
        "a success names its worker: a lease is not ended by those who do not hold it",
        HELD,
        "",
        by_test("test_finish::test_finish_by_another_worker_is_rejected"),
        within=SUCCEEDING,
    ),
    mutant(
        "succeed-expiry",
        "an expired worker ends nothing, even if the run has not been rescued yet",
        ALIVE,
        "workers.id = %(worker_id)s::uuid",
        Explored("succeed+rescue@expired"),
        within=SUCCEEDING,
    ),
    mutant(
        "settle-number",
        "a failure names its attempt",
        "and leases.number = given.number",
        "",
        Explored("fail+turn@leased"),
        within=SETTLING,
    ),
    mutant(
        "settle-worker",
        "a failure names its worker",
        HELD,
        "",
        by_test("test_finish::test_finish_by_another_worker_is_rejected"),
        within=SETTLING,
    ),
    mutant(
        "settle-expiry",
        "a worker whose lease has passed fails nothing and hands nothing back",
        ALIVE,
        "workers.id = %(worker_id)s::uuid",
        Explored("claim_by_id+fail_for_good@expired"),
        within=SETTLING,
    ),
    mutant(
        "rescue-expiry",
        "a rescue checks again whether the worker is dead: it may have renewed since it was found",
        "and not exists (select from holdfast.workers\n"
        "                        where workers.id = leases.worker_id and workers.expires_at > holdfast.now())",
        "",
        by_test("test_rescue::test_orphan_whose_worker_was_renewed_in_the_meantime_is_not_rescued"),
        within=SETTLING,
    ),
    mutant(
        "orphans-expiry",
        "only leases of dead workers are found by a claim of one run",
        "where not exists (select from holdfast.workers\n"
        "                          where workers.id = leases.worker_id and workers.expires_at > holdfast.now())",
        "where true",
        by_test("test_claim_by_id::test_leased_run_is_not_an_orphan"),
        within="and leases.run_id = %(run_id)s::uuid",
    ),
    mutant(
        "progress-fence",
        "progress is written only under a lease that holds",
        ALIVE,
        "workers.id = %(worker_id)s::uuid",
        by_test("test_progress::test_progress_after_the_lease_expired_is_rejected"),
        within="set progress",
    ),
    mutant(
        "ended-by-lost",
        "an attempt that was declared LOST was not ended by its worker, whose name it carries",
        "and (attempts.status <> 'LOST' or attempts.error ->> 'class' is distinct from 'LeaseExpired')",
        "",
        Explored("succeed+rescue@expiring", crashes=True),
    ),
    mutant(
        "ended-by-reason",
        "an attempt that was rescued after a cancel request has the reason of the request",
        "attempts.error ->> 'class' is distinct from 'LeaseExpired'",
        "attempts.reason is distinct from 'lost'",
        Explored("succeed+rescue@expired_flagged", crashes=True),
    ),
]

CANCEL = [
    mutant(
        "succeed-cancelled",
        "a cancel that was acknowledged wins over a success",
        "leases.cancel_requested_at is not null as stopped",
        "false as stopped",
        Explored("succeed+cancel@leased"),
    ),
    mutant(
        "settle-cancelled-outcome",
        "a cancel that was acknowledged wins over a retry and a failure",
        "case when leases.cancel_requested_at is not null then 'CANCELLED' else given.outcome end as outcome",
        "given.outcome as outcome",
        Explored("fail+cancel@leased"),
    ),
    mutant(
        "succeed-counts-cancelled",
        "a success that was cancelled is not acknowledged as one",
        "from gone where not stopped and job_id is null",
        "from gone where job_id is null",
        by_test("test_finish::test_cancel_request_overrides_a_success"),
    ),
    mutant(
        "settle-cancelled-status",
        "an attempt with a stored result that was cancelled did not succeed",
        "case when leases.cancel_requested_at is not null and given.status = 'SUCCEEDED' then 'CANCELLED'\n"
        "                   else given.status end as status",
        "given.status as status",
        by_test("test_finish::test_cancel_request_overrides_a_success_with_a_stored_result"),
    ),
    mutant(
        "settle-cancelled-ref",
        "a cancelled run keeps no reference to a result",
        "case when leases.cancel_requested_at is not null then null else given.ref end as ref",
        "given.ref as ref",
        by_test("test_finish::test_cancel_request_overrides_a_success_with_a_stored_result"),
    ),
    mutant(
        "cancel-first-time",
        "the first request to stop is the one that counts",
        "coalesce(cancel_requested_at, holdfast.now())",
        "holdfast.now()",
        by_test("test_cancel::test_second_cancel_request_changes_nothing"),
    ),
    mutant(
        "cancel-event-once",
        "a cancel request is recorded once",
        "and not exists (select from holdfast.events where events.run_id = leases.run_id\n"
        "                          and events.attempt = leases.number and events.type = 'CANCEL_REQUESTED')",
        "",
        by_test("test_cancel::test_second_cancel_request_changes_nothing"),
    ),
    mutant(
        "events-shown-in-order",
        "an event is not shown as earlier than the one before it",
        "max(at) over following as shown_at",
        "at as shown_at",
        by_test("test_history::test_end_is_not_shown_as_earlier_than_a_fenced_event_that_it_waited_for"),
    ),
    mutant(
        "renew-returns-cancel",
        "a renewal returns runs with cancel requests",
        "leases.run_id::text, leases.number,\n               leases.cancel_requested_at is not null",
        "leases.run_id::text, leases.number,\n               false",
        Explored("renew+cancel@flagged"),
    ),
]

WORKERS = [
    mutant(
        "renew-expiry",
        "a lease that has passed is not dereferenced",
        "where id = %(worker_id)s::uuid and expires_at > holdfast.now()",
        "where id = %(worker_id)s::uuid",
        Explored("renew+rescue@expired"),
        within="heartbeat_at = holdfast.now()",
    ),
    mutant(
        "renew-stopped",
        "a worker that has deregistered is not renewed, not even by a statement that began before",
        "and expires_at > holdfast.now() and stopped_at is null",
        "and expires_at > holdfast.now()",
        by_test("test_renew::test_renewal_that_began_before_the_worker_deregistered_does_not_revive_it"),
        within="heartbeat_at = holdfast.now()",
    ),
    mutant(
        "renew-greatest",
        "a renewal never shortens a lease, not even when the clock is set back",
        "greatest(expires_at, holdfast.now() + lease)",
        "holdfast.now() + lease",
        by_test("test_renew::test_renewal_never_shortens_a_lease"),
    ),
    mutant(
        "register-once",
        "a worker cannot come back under an id that was used before",
        "on conflict (id) do nothing",
        "on conflict (id) do update set expires_at = excluded.expires_at, heartbeat_at = excluded.heartbeat_at",
        by_test("test_renew::test_worker_cannot_register_again_with_its_old_id"),
        within="insert into holdfast.workers",
    ),
    mutant(
        "forget-leases",
        "a worker that still has leases is not forgotten",
        "and not exists (select from holdfast.leases where leases.worker_id = workers.id)",
        "",
        by_test("test_rescue::test_worker_with_leases_is_not_deleted"),
    ),
    mutant(
        "claim-expiry",
        "a worker whose lease has passed claims nothing",
        "workers.expires_at > holdfast.now()",
        "true",
        by_test("test_claim::test_expired_worker_claims_nothing"),
        within="insert into holdfast.leases",
    ),
    mutant(
        "claim-drain",
        "a draining worker claims nothing",
        "and workers.drain_requested_at is null",
        "",
        by_test("test_claim::test_draining_worker_claims_nothing"),
        within="insert into holdfast.leases",
    ),
]

QUEUE = [
    mutant(
        "claim-paused",
        "a paused queue gives nothing",
        "where queues.name = bound.queue and queues.paused_at is not null",
        "where false",
        by_test("test_claim::test_no_run_of_a_paused_queue_is_claimed"),
    ),
    mutant(
        "claim-one-paused",
        "a paused queue does not give a run by its id either",
        "where queues.name = ready.queue and queues.paused_at is not null",
        "where false",
        by_test("test_claim::test_no_run_of_a_paused_queue_is_claimed"),
    ),
    mutant(
        "claim-limit",
        "a claim for k takes at most k",
        "    limit %(limit)s\n",
        "\n",
        by_test("test_claim::test_claim_takes_no_more_than_its_limit"),
        within="as bound (queue",
    ),
    mutant(
        "claim-order",
        "the highest priority first, then the oldest",
        "order by ready.ord, ready.rank_at, ready.run_id\n",
        "order by ready.run_id\n",
        by_test("test_claim::test_single_claims_follow_the_same_order"),
    ),
    mutant(
        "claim-skip-locked",
        "claims do not stand in line behind each other",
        "for update skip locked\n        ) as of_task",
        "for update\n        ) as of_task",
        Explored("claim+claim@ready"),
    ),
    mutant(
        "promote-due",
        "nothing is ready before its time",
        "where blockers = 0 and due_at <= holdfast.now()\n",
        "where blockers = 0\n",
        Explored("claim+promote@falling_due"),
    ),
    mutant(
        "promote-blockers",
        "nothing is ready that waits for others",
        "where blockers = 0 and due_at <= holdfast.now()\n",
        "where due_at <= holdfast.now()\n",
        by_test("test_promote::test_blocked_run_is_not_promoted"),
    ),
    mutant(
        "promote-skip-locked",
        "promoting does not stand in line behind a cancel",
        "order by due_at limit %(limit)s for update skip locked",
        "order by due_at limit %(limit)s for update",
        Explored("cancel+promote@due"),
    ),
    mutant(
        "submit-due",
        "a run for later is not ready at once",
        "where coalesce(run_after <= holdfast.now(), true)",
        "where true",
        by_test("test_submit::test_run_with_a_later_start_waits", relative=True),
    ),
]

BUDGET = [
    mutant(
        "settle-excuse",
        "handing a run back costs no attempt",
        "leases.excused + given.excuse as excused",
        "leases.excused as excused",
        by_test("test_finish::test_handing_back_uses_up_no_attempt"),
    ),
    mutant(
        "claim-excused",
        "excused attempts stay excused through a claim",
        "select run_id, %(worker_id)s::uuid, holdfast.now(), number, excused,",
        "select run_id, %(worker_id)s::uuid, holdfast.now(), number, 0,",
        by_test("test_finish::test_handing_back_uses_up_no_attempt"),
    ),
    mutant(
        "settle-next-number",
        "the next attempt has the next number: a token that is used twice fences nothing",
        "coalesce(jobs.created_at, holdfast.now()), gone.number + 1",
        "coalesce(jobs.created_at, holdfast.now()), gone.number",
        Explored("claim+hand_back@leased"),
    ),
    mutant(
        "settle-delay",
        "a failed attempt rests before the next",
        "holdfast.now() + gone.delay * interval '1 second'",
        "holdfast.now()",
        by_test("test_finish::test_failed_attempt_is_retried_after_its_delay"),
    ),
    mutant(
        "claim-crashes",
        "earlier crashes are counted, so that only the first is retried at once",
        "and (attempts.status = 'LOST' or attempts.reason = 'crash')) else 0 end",
        "and false) else 0 end",
        by_test("test_finish::test_first_crash_is_retried_immediately_and_later_ones_by_policy"),
    ),
    mutant(
        "reopen-budget",
        "a retry by a person gives the whole budget again",
        "select id, rank_at, number + 1, number, ord",
        "select id, rank_at, number + 1, 0, ord",
        by_test("test_retry::test_retried_run_is_due_now_with_all_attempts"),
    ),
]
