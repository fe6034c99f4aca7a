"""Guards in operations and rules: row counts that are looked at, answers that are checked, transactions shared."""

from __future__ import annotations

from tests.explore.catching import Explored, Mutant, Told
from tests.explore.mutants_sql import told
from tests.explorer.mutation import Mutation


def mutant(name: str, guard: str, module: str, old: str, new: str, caught_by: Explored | Told) -> Mutant:
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
        "        if run.status.final:\n            return run\n        if False:\n            raise RunEnded(",
        told("test_cancel::test_what_ended_otherwise_cannot_be_cancelled", ending="FAILED"),
    ),
    mutant(
        "cancel-withdrawn",
        "whether a run was withdrawn is told by the rows that left",
        "ops.cancel",
        "        if ended:",
        "        if True:",
        told("test_cancel::test_a_running_run_is_asked_and_can_then_only_end_cancelled"),
    ),
    mutant(
        "finish-fenced",
        "a refused write is recorded",
        "ops.finish",
        "    if refused:",
        "    if False:",
        told("test_finish::test_a_second_ending_is_refused_and_recorded"),
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
        "renew-refused",
        "a worker whose lease is lost is told so",
        "ops.renew",
        "    if renewal is None:",
        "    if False:",
        told("test_renew::test_a_lease_that_has_passed_is_not_revived"),
    ),
    mutant(
        "rescue-only-accepted",
        "what somebody else settled in between is no refused write",
        "ops.rescue",
        "[s for s in settlements if s.ref in refs]",
        "settlements",
        told("test_rescue::test_what_was_found_is_asked_again_before_it_is_written"),
    ),
    mutant(
        "retry-reopened",
        "a retry that reopened nothing is not called one",
        "ops.retry",
        '    if not reopened:\n        raise RunEnded(\n            f"run {run_id} is',
        '    if False:\n        raise RunEnded(\n            f"run {run_id} is',
        told("test_retry::test_retrying_twice_reopens_once"),
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
        told("test_dedupe::test_a_stricter_isolation_is_refused"),
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
        "runs that are asked for together are made all or none",
        "ops.submit",
        "submissions.insert_batch(head, batch, together=together, again=again, more=left > 0)",
        "submissions.insert_batch(head, batch, together=False, again=again, more=left > 0)",
        Explored("submit_batch+submit_batch@fresh", crashes=True),
    ),
    mutant(
        "batches-again",
        "a batch that is asked for again finds what the first request made",
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
        "        each(_success_verdict),\n        together=True,",
        "        each(_success_verdict),",
        told("test_finish::test_an_ending_and_its_count_are_one_transaction"),
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
        "            spent=orphan.number - orphan.excused,",
        "            spent=0,",
        Explored("claim_by_id+rescue@expired_last"),
    ),
    mutant(
        "first-crash-at-once",
        "only the first crash is retried without delay",
        "domain.settling",
        "    if crashes == 0:",
        "    if crashes is not None:",
        told("test_rescue::test_later_losses_wait_by_the_policy_and_use_the_budget"),
    ),
    mutant(
        "fatal-is-final",
        "a fatal failure is not tried again",
        "domain.settling",
        "            if not outcome.retryable:\n                ends = Status.FAILED",
        "            if not outcome.retryable:\n                pass",
        told("test_finish::test_a_fatal_failure_is_not_tried_again"),
    ),
    mutant(
        "handed-back-is-excused",
        "a run that was handed back has not used an attempt",
        "domain.settling",
        "                excuse=True,\n                reason=outcome.reason,",
        "                excuse=False,\n                reason=outcome.reason,",
        told("test_finish::test_handing_back_costs_no_budget"),
    ),
]
