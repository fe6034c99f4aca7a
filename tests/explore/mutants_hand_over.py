"""Guards of hand-overs: which workers may be handed a run, and that each is handed at most one."""

from __future__ import annotations

from tests.explore.catching import ByTest, Explored, Mutant
from tests.explore.mutants_sql import by_test, mutant
from tests.explorer.mutation import SCHEMA, Mutation


def given(name: str, guard: str, old: str, new: str, caught_by: Explored | ByTest) -> Mutant:
    return Mutant(Mutation(name, guard, SCHEMA, old, new), caught_by)


TAKE: list[Mutant] = [
    given(
        "hand-over-expired",
        "a run is not handed to a worker whose lease has passed, or is about to",
        "and workers.expires_at > holdfast.now() + (clock_timestamp() - statement_timestamp()) + interval '1 second'",
        "",
        Explored("hand_over_first+adopt@waited_expired"),
    ),
    given(
        "hand-over-expiring",
        "a run is not handed to a worker whose lease the database would reject a moment later",
        " + (clock_timestamp() - statement_timestamp()) + interval '1 second'",
        "",
        by_test("test_hand_over::test_run_is_not_handed_to_an_expired_worker"),
    ),
    given(
        "hand-over-draining",
        "a run is not handed to a worker that drains",
        "and workers.drain_requested_at is null",
        "",
        Explored("hand_over_first+adopt@waited_drained"),
    ),
    given(
        "hand-over-task",
        "a run is not handed to a worker that does not know its task",
        "and its_task = any (workers.tasks)",
        "",
        Explored("hand_over_first+adopt@waited_other"),
    ),
    given(
        "hand-over-queue",
        "a run is not handed to a worker of other queues",
        "and (workers.queues is null or its_queue = any (workers.queues))",
        "",
        by_test("test_hand_over::test_run_of_another_queue_is_not_handed_over"),
    ),
    given(
        "hand-over-paused",
        "a run of a paused queue is not handed over",
        "and not exists (select from holdfast.queues where queues.name = its_queue and queues.paused_at is not null)",
        "",
        Explored("hand_over_first+adopt@waited_paused"),
    ),
    given(
        "hand-over-overtakes",
        "a run is not handed over before an older one of its queue",
        "and not exists (select from holdfast.ready "
        "where ready.queue = its_queue and ready.task = any (workers.tasks))",
        "",
        Explored("hand_over_first+adopt@waited_ready"),
    ),
    given(
        "hand-over-overtakes-another-task",
        "a run is not handed over before an older one of another task of the worker",
        "ready.queue = its_queue and ready.task = any (workers.tasks)",
        "ready.queue = its_queue and ready.task = its_task",
        by_test("test_hand_over::test_new_run_does_not_overtake_an_older_run_of_its_queue", task="other work"),
    ),
    given(
        "hand-over-unnotified",
        "a run is not handed to a worker whose connection is closed",
        "and not pg_try_advisory_xact_lock_shared(18431207, waits.listener)",
        "",
        by_test("test_hand_over::test_run_is_not_handed_to_a_worker_whose_connection_is_closed"),
    ),
    given(
        "hand-over-alone-with-a-lock",
        "two submits at the same moment both see that a connection is closed",
        "pg_try_advisory_xact_lock_shared(",
        "pg_try_advisory_xact_lock(",
        by_test("test_hand_over::test_two_submits_see_that_a_connection_is_closed"),
    ),
    given(
        "hand-over-order",
        "the worker that waits longest is given the run",
        "order by waits.since limit 1",
        "order by waits.since desc limit 1",
        by_test("test_hand_over::test_run_is_handed_to_the_worker_that_has_waited_longest"),
    ),
    given(
        "hand-over-twice",
        "a worker that waits is given one run",
        "update holdfast.waiting_workers set since = null",
        "update holdfast.waiting_workers set since = since",
        Explored("hand_over_first+hand_over_first@waited"),
    ),
    given(
        "hand-over-not-waiting",
        "a worker that does not wait is given nothing",
        "where waits.since is not null\n          and",
        "where",
        by_test("test_hand_over::test_worker_that_has_left_the_list_is_handed_nothing_while_another_waits"),
    ),
    given(
        "hand-over-skips-locked",
        "a submit does not wait for a worker that is leaving the list",
        "for update of waits skip locked",
        "for update of waits",
        by_test("test_hand_over::test_submit_does_not_wait_for_a_worker_that_is_leaving_the_list"),
    ),
    given(
        "hand-over-too-long",
        "a claim that is too long for a notification is left out",
        "case when octet_length(claim) < 7900 then claim else '' end",
        "claim",
        by_test("test_hand_over::test_claim_that_is_too_long_for_a_notification_is_read_from_the_database"),
    ),
    mutant(
        "hand-over-and-queue",
        "a run that is handed over is not queued as well",
        "from made where not holdfast.hand_over(id, queue, task)",
        "from made where holdfast.hand_over(id, queue, task) is not null",
        Explored("hand_over+claim@waited"),
    ),
    given(
        "hand-over-new-and-queue",
        "a new run that is handed over is not queued as well",
        "values (new_task, 'created', 1);\n    else\n        insert into holdfast.ready",
        "values (new_task, 'created', 1);\n    end if;\n    if true then\n        insert into holdfast.ready",
        Explored("hand_over_first+claim@waited"),
    ),
    given(
        "hand-over-new-while-none-may",
        "a new run is handed over only if its statement is alone in its transaction",
        "if hands_over then",
        "if true then",
        by_test("test_hand_over::test_runs_of_a_callers_transaction_and_of_batches_are_queued"),
    ),
]

LIST: list[Mutant] = [
    mutant(
        "leave-before-claiming",
        "a worker that claims by itself waits no longer",
        "update holdfast.waiting_workers set since = null",
        "update holdfast.waiting_workers set since = since",
        Explored("hand_over_first+claim_and_leave@waited"),
        within="with gone as (\n            update holdfast.waiting_workers",
    ),
    mutant(
        "leave-skips-locked",
        "a worker that claims does not wait for a submit that is handing it a run",
        "since is not null for update skip locked",
        "since is not null for update",
        by_test("test_hand_over::test_worker_leaves_the_list_without_waiting_for_a_submit"),
    ),
    mutant(
        "wait-skips-locked",
        "a worker that lists itself does not wait for a submit",
        "%(worker_id)s::uuid for update skip locked\n        ), listed",
        "%(worker_id)s::uuid for update\n        ), listed",
        by_test("test_hand_over::test_worker_lists_itself_without_waiting_for_a_submit"),
    ),
    mutant(
        "wait-looks-again",
        "a worker does not wait while there is a run for it",
        "where not work.found and",
        "where",
        Explored("hand_over_first+wait_again@waited_ready"),
    ),
    mutant(
        "wait-paused",
        "runs of paused queues do not keep a worker from waiting",
        """
                             and not exists (select from holdfast.queues
                                             where queues.name = queued_task.queue and queues.paused_at is not null)""",
        "",
        by_test("test_hand_over::test_runs_that_the_worker_cannot_execute_do_not_prevent_a_hand_over"),
    ),
    mutant(
        "wait-bounded",
        "workers do not wait in a list that cannot be cleaned up",
        " and pg_relation_size('holdfast.waiting_workers') < %(most_bytes)s",
        " and %(most_bytes)s is not null",
        by_test("test_hand_over::test_worker_does_not_wait_in_a_list_that_has_grown"),
    ),
    mutant(
        "adopt-what-was-given",
        "a worker finds what it was given, if the notification is lost",
        "on not own.waits and leases.worker_id",
        "on own.waits and leases.worker_id",
        Explored("hand_over_first+adopt@waited"),
    ),
    mutant(
        "stop-waiting",
        "a worker that stopped does not wait",
        "delete from holdfast.waiting_workers where worker_id = %(worker_id)s::uuid",
        "select",
        by_test("test_hand_over::test_run_is_not_handed_to_a_stopped_worker"),
    ),
]

CODE: list[Mutant] = [
    Mutant(
        Mutation(
            "hand-over-in-a-transaction",
            "a run is handed over only by a statement that is alone in its transaction",
            "holdfast.sql.submissions",
            "_ONE[again, ring, not together]",
            "_ONE[again, ring, True]",
        ),
        Explored("hand_over_dedupe+adopt@waited"),
    ),
    Mutant(
        Mutation(
            "hand-over-in-a-callers-transaction",
            "a client on a caller's connection hands nothing over",
            "holdfast.client.blocking",
            "            make_op.at_once()\n",
            "            make_op.at_once()\n        if isinstance(make_op, Submitting):\n            make_op.ring()\n",
        ),
        ByTest("tests.integration.test_hand_over::test_run_of_a_callers_transaction_is_not_handed_over"),
    ),
]


def worker(name: str, guard: str, old: str, new: str, test: str, module: str = "hand_over") -> Mutant:
    return Mutant(
        Mutation(name, guard, f"holdfast.worker.{module}", old, new),
        ByTest(f"tests.integration.test_hand_over::{test}"),
    )


LOST = "test_run_whose_notification_is_lost_is_found_and_costs_no_attempt"
WORKERS: list[Mutant] = [
    worker(
        "adopt-at-a-look",
        "a worker that was given a run without its knowledge finds it at its next look",
        "            request.given = True\n",
        "            request.given = False\n",
        LOST,
    ),
    worker(
        "adopt-once",
        "a notification that arrives late does not begin a run again",
        "(given.run_id, given.number) in results.late or ",
        "",
        LOST,
    ),
    worker(
        "look-before-waiting",
        "a worker looks for what it was given before it waits again",
        "return looked and self.listed is None",
        "return self.listed is None",
        "test_worker_that_waits_again_finds_what_it_was_given_before",
    ),
    worker(
        "return-once",
        "a notification of a run that was returned does not begin it",
        "            self.late.append(ref)\n",
        "",
        "test_notification_that_arrives_after_the_run_was_returned_does_not_begin_it",
        "results",
    ),
    worker(
        "leave-the-list",
        "a worker that claims by itself leaves the list",
        "            request.leave = self.listed is not None\n",
        "            request.leave = False\n",
        "test_worker_that_claims_a_run_no_longer_waits",
    ),
    worker(
        "wait-on-the-next-connection",
        "a worker whose connection was lost waits on the next one",
        "        if address is not None and (moved or due) and free:\n",
        "        if address is not None and due and free:\n",
        "test_worker_that_lost_its_connection_waits_on_the_next_one",
    ),
    worker(
        "claims-from-the-database",
        "a worker begins no run that another program than the database says it was given",
        " and self.options.listener.address is not None",
        "",
        "test_claim_from_a_listener_without_an_address_is_ignored",
        "supervisor",
    ),
    worker(
        "read-what-is-too-long",
        "a worker reads a claim that was too long for its notification",
        "self.worked()\n            self._look_at = 0.0\n",
        "self.worked()\n            self._look_at = inf\n",
        "test_run_with_large_parameters_is_read_by_the_worker",
    ),
]
