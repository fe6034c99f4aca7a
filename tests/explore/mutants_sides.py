"""Guards of steps, log lines, publishing, live months, and the lifecycle of a worker."""

from __future__ import annotations

from holdfast.sql.leases import HELD as FENCE
from tests.explore.catching import ByTest, Explored, Mutant
from tests.explore.mutants_sql import ALIVE, HELD, by_test, mutant
from tests.explorer.mutation import SCHEMA, Mutation

STEP, LINE = "insert into holdfast.steps", "insert into holdfast.logs"


def worker(name: str, guard: str, module: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(
        Mutation(name, guard, f"holdfast.worker.{module}", old, new),
        ByTest(f"tests.integration.test_worker_leaving::{test}"),
    )


def live(name: str, guard: str, old: str, test: str, **arguments: str) -> Mutant:
    return Mutant(Mutation(name, guard, SCHEMA, old, ""), by_test(f"test_prune::{test}", **arguments))


NOTES = [
    mutant(
        "step-unfenced",
        "a step is kept only under a lease that holds",
        FENCE,
        "",
        Explored("step+rescue@expired"),
        within=STEP,
    ),
    mutant(
        "step-unlocked",
        "a step is not kept while its attempt is being ended",
        "            for update of leases\n",
        "",
        Explored("fail+step@leased"),
        within=STEP,
    ),
    mutant(
        "step-expiry",
        "a worker whose lease has passed keeps no step",
        ALIVE,
        "workers.id = %(worker_id)s::uuid",
        by_test("test_steps::test_step_after_the_lease_expired_is_rejected"),
        within=STEP,
    ),
    mutant(
        "step-number",
        "an earlier attempt of the same worker keeps no step",
        "and leases.number = %(number)s",
        "",
        by_test("test_steps::test_step_of_an_earlier_attempt_is_rejected"),
        within=STEP,
    ),
    mutant(
        "step-worker",
        "a step is kept by the worker that holds the run",
        HELD,
        "",
        by_test("test_steps::test_step_by_another_worker_is_rejected"),
        within=STEP,
    ),
    mutant(
        "step-stays",
        "the first result of a step stays",
        "on conflict (run_id, name) do nothing",
        "on conflict (run_id, name) do update set result = excluded.result",
        by_test("test_steps::test_first_result_of_a_step_is_kept"),
        within=STEP,
    ),
    mutant(
        "logs-unfenced",
        "a line is written only under a lease that holds",
        FENCE,
        "",
        Explored("log+rescue@expired"),
        within=LINE,
    ),
    mutant(
        "log-number",
        "an earlier attempt of the same worker writes no line",
        "and leases.number = given.number",
        "",
        by_test("test_steps::test_log_line_of_an_earlier_attempt_is_rejected"),
        within=LINE,
    ),
    mutant(
        "log-worker",
        "a line is written by the worker that holds the run",
        HELD,
        "",
        by_test("test_steps::test_log_line_by_another_worker_is_rejected"),
        within=LINE,
    ),
]

PUBLISHING = [
    mutant(
        "deliveries-holder",
        "only the holder of a subscription says what arrived",
        "              and publishing.holder = %(holder)s::uuid)\n",
        ")\n",
        by_test("test_publishing::test_publisher_whose_hold_expired_changes_nothing"),
    ),
    mutant(
        "let-go-holder",
        "a hold is given up by its holder alone",
        "where subscription_id = %(subscription_id)s::uuid and holder = %(holder)s::uuid",
        "where subscription_id = %(subscription_id)s::uuid",
        by_test("test_publishing::test_publisher_whose_hold_expired_changes_nothing"),
    ),
    mutant(
        "publishing-paused",
        "nothing is delivered to a subscription that is paused",
        "where subscriptions.paused_at is null and head.due_at",
        "where head.due_at",
        by_test("test_publishing::test_paused_subscription_cannot_be_held"),
    ),
    mutant(
        "publishing-due",
        "what was put off is not delivered before its time",
        "and head.due_at <= holdfast.now()",
        "",
        by_test("test_publishing::test_failed_delivery_delays_later_deliveries"),
    ),
    mutant(
        "fan-out-since",
        "a subscription gets what ended since it was made",
        "on (taken.at >= subscriptions.created_at\n"
        "                  or not pg_visible_in_snapshot(taken.xid, subscriptions.since))\n",
        "on true\n",
        by_test("test_publishing::test_run_that_ended_before_a_subscription_is_not_delivered_to_it"),
    ),
]

LIVE = [
    live(
        "live-jobs",
        "a month with an open job stays",
        "                     union all select id from holdfast.jobs where finished_at is null",
        "test_month_with_an_open_job_is_kept",
    ),
    live(
        "live-dependencies",
        "a month with a run that another waits for stays",
        " or holdfast.is_awaited(low, high)",
        "test_month_with_a_run_that_another_waits_for_is_kept",
    ),
    live(
        "live-waiting",
        "a month with a run that waits stays",
        " union all select run_id from holdfast.waiting",
        "test_month_with_a_live_run_is_kept",
        place="waiting",
    ),
    live(
        "live-leases",
        "a month with a running run stays",
        "                     union all select run_id from holdfast.leases\n",
        "test_month_with_a_live_run_is_kept",
        place="leases",
    ),
]

WORKERS = [
    worker(
        "renewal-counted-from-answer",
        "a lease counts from when its renewal was sent",
        "renewal",
        "        self._confirmed = sent\n",
        "        self._confirmed = monotonic()\n",
        "test_worker_whose_renewal_was_answered_late_stops_its_runs_before_the_lease_expires",
    ),
    worker(
        "unknown_leases-at-once",
        "a lease that a worker does not know yet may be one whose claim is being answered",
        "session",
        "        known_for_long = unknown & self._unknown\n",
        "        known_for_long = unknown\n",
        "test_claim_whose_response_is_in_transit_is_not_handed_back",
    ),
    worker(
        "unknown_leases-never",
        "a lease that a worker never learns of is handed back",
        "session",
        "        self._unknown = unknown\n",
        "        self._unknown = frozenset()\n",
        "test_lease_unknown_to_its_worker_is_returned_to_the_queue",
    ),
    worker(
        "let-go-deregisters-first",
        "a worker reports how its runs ended before it leaves",
        "supervisor",
        "                await self._deregister(settled=await self._settle_last())\n",
        "                await self._deregister(settled=True)\n                await self._settle_last()\n",
        "test_stopping_worker_reports_ended_runs_before_it_exits",
    ),
    worker(
        "let-go-hands-back",
        "a worker that leaves hands back what has not ended",
        "supervisor",
        "        returned = exchange.results.hand_back_all()\n",
        "        returned = 0\n",
        "test_stopped_worker_holds_no_leases_and_is_marked_as_stopped",
    ),
    worker(
        "let-go-deregisters",
        "a worker that has left is known to be gone at once",
        "supervisor",
        "                await self._deregister(settled=await self._settle_last())\n",
        "                await self._settle_last()\n",
        "test_stopped_worker_holds_no_leases_and_is_marked_as_stopped",
    ),
]
