"""Guards in operations and rules: checks of row counts and responses, and shared transactions."""

from __future__ import annotations

from holdfast.domain.settling import Succeeded
from tests.explore.catching import ByTest, Explored, Mutant
from tests.explore.mutants_sql import by_test
from tests.explorer.mutation import Mutation


def mutant(name: str, guard: str, module: str, old: str, new: str, caught_by: Explored | ByTest) -> Mutant:
    return Mutant(Mutation(name, guard, f"holdfast.{module}", old, new), caught_by)


OPERATIONS = [
    mutant(
        "cancel-rounds",
        "a run that moves between two looks is looked for again",
        "ops.cancel",
        "ROUNDS = 10",
        "ROUNDS = 1",
        Explored("cancel+promote@due"),
    ),
    mutant(
        "cancel-ended",
        "a run that ended otherwise is not called cancelled",
        "ops.cancel",
        "        if run.status.final:\n            raise RunEnded(",
        "        if run.status.final:\n            return Cancellation(run, False)\n"
        "        if False:\n            raise RunEnded(",
        by_test("test_cancel::test_run_that_has_ended_otherwise_cannot_be_cancelled", ending="FAILED"),
    ),
    mutant(
        "cancel-withdrawn",
        "the deleted rows show whether a run was withdrawn",
        "ops.cancel",
        "        if ended:",
        "        if True:",
        by_test("test_cancel::test_running_run_with_a_cancel_request_can_only_end_cancelled"),
    ),
    mutant(
        "finish-fenced",
        "a refused write is recorded",
        "ops.finish",
        "    if refused:",
        "    if False:",
        by_test("test_finish::test_second_finish_of_an_attempt_is_rejected_and_recorded"),
    ),
    mutant(
        "finish-ack",
        "what was not written is not called accepted",
        "ops.finish",
        "Acknowledgement(s.ref, False, s.status, s.outcome)",
        "Acknowledgement(s.ref, True, s.status, s.outcome)",
        Explored("succeed+rescue@expired"),
    ),
    mutant(
        "finish-once",
        "an attempt that is given twice is counted once",
        "ops.finish",
        "    if len(set(map(_ref, settlements))) < len(settlements):",
        "    if False:",
        by_test("test_finish::test_attempt_that_is_given_twice_is_settled_and_counted_once", second=Succeeded("2")),
    ),
    mutant(
        "succeed-all",
        "only if every attempt is counted is each of them called accepted",
        "sql.leases",
        "        if plain == len(settlements):",
        "        if plain:",
        by_test("test_finish::test_acknowledgements_are_in_the_order_of_the_settlements"),
    ),
    mutant(
        "renew-refused",
        "a worker that lost its lease receives an error",
        "ops.workers",
        "    if renewal is None:",
        "    if False:",
        by_test("test_renew::test_expired_lease_is_not_renewed"),
    ),
    mutant(
        "rescue-only-accepted",
        "an attempt settled by another worker in between is not a rejected write",
        "ops.rescue",
        "[s for s in settlements if s.ref in refs]",
        "settlements",
        by_test("test_rescue::test_orphan_that_was_settled_in_the_meantime_is_not_rescued"),
    ),
    mutant(
        "retry-reopened",
        "a retry that reopened nothing is not called one",
        "ops.retry",
        '    if not reopened:\n        raise RunEnded(\n            f"run {run_id} is',
        '    if False:\n        raise RunEnded(\n            f"run {run_id} is',
        by_test("test_retry::test_retrying_twice_reopens_once"),
    ),
    mutant(
        "submit-compares",
        "a key stands for one request: another payload is a conflict",
        "ops.submit",
        "        if (known.task, known.payload_hash) != (new.task, new.payload_hash):",
        "        if False:",
        Explored("submit_key+submit_other@fresh"),
    ),
    mutant(
        "submit-isolation",
        "dedupe is refused where it could not see what others just made",
        "ops.submit",
        '    if isolation != "read committed":',
        "    if False:",
        by_test("test_dedupe::test_dedupe_rejects_a_stricter_isolation_level"),
    ),
    mutant(
        "dedupe-together",
        "the lock on a payload is held until the run is written",
        "sql.payloads",
        "        lambda found: str(found[0][0]),\n        together=True,",
        "        lambda found: str(found[0][0]),",
        Explored("submit_dedupe+submit_dedupe@fresh"),
    ),
    mutant(
        "batches-together",
        "a batch is created completely or not at all",
        "ops.submit",
        "submissions.insert_batch(head, batch, together=together, again=again, more=left > 0)",
        "submissions.insert_batch(head, batch, together=False, again=again, more=left > 0)",
        Explored("submit_batch+submit_batch@fresh", crashes=True),
    ),
    mutant(
        "batches-again",
        "a repeated batch finds the runs of the first request",
        "ops.submit",
        "submissions.insert_batch(head, batch, together=together, again=again, more=left > 0)",
        "submissions.insert_batch(head, batch, together=together, again=False, more=left > 0)",
        Explored("submit_batch+submit_batch@fresh", crashes=True),
    ),
    mutant(
        "submit-again",
        "so does a lone run",
        "ops.submit",
        "submissions.insert_one(head, payload, ring=ring, again=again)",
        "submissions.insert_one(head, payload, ring=ring, again=False)",
        Explored("submit_first+submit_first@fresh", crashes=True),
    ),
    mutant(
        "succeed-together",
        "an ending and its count are one transaction",
        "sql.leases",
        "        decode,\n        together=True,",
        "        decode,",
        by_test("test_finish::test_finish_and_its_counters_are_one_transaction"),
    ),
    mutant(
        "children-found-by-old-id",
        "a child that an earlier version added is found by its key",
        "ops.create",
        "    derived = {derived_id(*name): name for name in names if name not in there}\n",
        "    derived: dict[str, KnownAs] = {}\n",
        by_test("test_children::test_child_of_an_earlier_version_is_found_by_its_key"),
    ),
    mutant(
        "children-kept-under-old-id",
        "a child that an earlier version added is not added again",
        "ops.children",
        " and not (_is_retry(by) and (yield from jobs.existing([new.id]))):",
        ":",
        by_test("test_children::test_next_attempt_does_not_add_a_child_of_an_earlier_version_again"),
    ),
]

RULES = [
    mutant(
        "budget-spent",
        "poison stops at max_attempts",
        "domain.settling",
        "    if spent >= policy.max_attempts:",
        "    if spent > policy.max_attempts:",
        Explored("fail+fail@last"),
    ),
    mutant(
        "budget-of-the-lost",
        "the dead cannot count: a lost attempt uses the budget too",
        "ops.rescue",
        "spent=orphan.number - orphan.excused,",
        "spent=0,",
        Explored("claim_by_id+rescue@expired_last"),
    ),
    mutant(
        "first-crash-at-once",
        "only the first crash is retried without delay",
        "domain.settling",
        "    if crashes == 0:",
        "    if crashes is not None:",
        by_test("test_rescue::test_later_lost_attempts_are_delayed_and_counted_by_the_policy"),
    ),
    mutant(
        "fatal-is-final",
        "a fatal failure is not tried again",
        "domain.settling",
        "            if not outcome.retryable:\n                ends = Status.FAILED",
        "            if not outcome.retryable:\n                pass",
        by_test("test_finish::test_fatal_failure_is_not_retried"),
    ),
    mutant(
        "handed-back-is-excused",
        "a run that was handed back has not used an attempt",
        "domain.settling",
        "excuse=True, reason=reason)",
        "excuse=False, reason=reason)",
        by_test("test_finish::test_handing_back_uses_up_no_attempt"),
    ),
]

HTTP = [
    mutant(
        "bridge-left",
        "a stream ends when its client has left",
        "http.bridge",
        "                if client.left:\n                    break\n",
        "",
        ByTest("tests.http.test_bridge::test_stream_ends_when_its_client_has_disconnected"),
    ),
]
