"""Guards in the schema: keys, constraints and triggers, which apply to hand-written SQL as well."""

from __future__ import annotations

from typing import Any

from holdfast.domain.states import Status
from tests.explore.catching import ByTest, Explored, Mutant
from tests.explore.mutants_sql import by_test
from tests.explorer.mutation import SCHEMA, Mutation

STATEMENT = "for each statement execute function"


def by_hand(test: str, **arguments: Any) -> ByTest:
    return ByTest(f"tests.integration.{test}", tuple(arguments.items()))


def moves(old: Status) -> ByTest:
    return by_hand("test_schema_moves::test_moves_that_are_not_listed_are_refused", old=old)


def shortcuts(old: Status) -> ByTest:
    return by_hand("test_schema_moves::test_shortcuts_are_refused", old=old)


def vanishes(old: Status) -> ByTest:
    return by_hand("test_schema_moves::test_run_cannot_be_removed_from_its_tables", old=old)


def attempt(row: str) -> ByTest:
    return by_hand("test_schema_shape::test_inconsistent_attempt_is_refused", row=row)


def mutant(name: str, guard: str, old: str, new: str, caught_by: Explored | ByTest) -> Mutant:
    return Mutant(Mutation(name, guard, SCHEMA, old, new), caught_by)


UNLESS_CREATING = "for each statement when (coalesce(current_setting('holdfast.creating', true), '') = '')"


def arriving(table: str, function: str, guard: str, caught_by: ByTest) -> Mutant:
    """Remove a guard of the rows that are inserted into a table."""
    statement = f"{UNLESS_CREATING}\n    execute function" if table in ("ready", "leases") else STATEMENT
    old = (
        f"create trigger {table}_guard after insert on holdfast.{table} referencing new table as arrived\n"
        f"    {statement} holdfast.{function}();"
    )
    return mutant(f"{table}-arriving", guard, old, "", caught_by)


def leaving(table: str, function: str, guard: str, caught_by: ByTest) -> Mutant:
    old = (
        f"create trigger {table}_left after delete on holdfast.{table} referencing old table as departed\n"
        f"    {STATEMENT} holdfast.{function}();"
    )
    return mutant(f"{table}-leaving", guard, old, "", caught_by)


def unasked(name: str, other: str, table: str, caught_by: ByTest) -> Mutant:
    """Let the guard of one queue, identified by the `other` table that it asks about, skip one of its questions."""
    leases = "if exists (select from holdfast.leases where run_id = any (ids))"
    queue = f"or exists (select from holdfast.{other} where run_id = any (ids))"
    attempts = "or exists (select from holdfast.attempts"
    old = f"{leases}\n       {queue}\n       {attempts}"
    new = {
        "leases": f"if false\n       {queue}\n       {attempts}",
        other: f"{leases}\n       {attempts}",
        "attempts": f"{leases}\n       {queue}\n       {attempts.replace('or', 'or false and')}",
    }[table]
    return mutant(name, f"a run that is in {table} is not queued as well", old, new, caught_by)


WAITING_RUN = by_hand("test_schema_moves::test_waiting_run_is_subject_to_the_same_rules")

PLACES = [
    unasked("ready-while-leased", "waiting", "leases", shortcuts(Status.RUNNING)),
    unasked("ready-while-waiting", "waiting", "waiting", WAITING_RUN),
    unasked("ready-after-the-end", "waiting", "attempts", shortcuts(Status.FAILED)),
    unasked("waiting-while-leased", "ready", "leases", shortcuts(Status.RUNNING)),
    unasked("waiting-while-ready", "ready", "ready", moves(Status.PENDING)),
    unasked("waiting-after-the-end", "ready", "attempts", shortcuts(Status.FAILED)),
    arriving(
        "ready",
        "guard_ready",
        "a run is queued in one place, and not while it runs or after it ended",
        shortcuts(Status.FAILED),
    ),
    arriving(
        "waiting",
        "guard_waiting",
        "a run waits in one place, and not while it runs or after it ended",
        shortcuts(Status.CANCELLED),
    ),
    arriving(
        "leases", "guard_lease", "a run is leased only from the queue, under its next number", moves(Status.SUCCEEDED)
    ),
    arriving(
        "attempts",
        "guard_attempt",
        "an attempt ends only when its lease is gone, a run only when it is not queued",
        shortcuts(Status.RUNNING),
    ),
    leaving(
        "ready",
        "guard_pending_left",
        "a run leaves the queue only by being leased or cancelled",
        vanishes(Status.PENDING),
    ),
    leaving(
        "waiting",
        "guard_pending_left",
        "a run stops waiting only by being queued or cancelled",
        WAITING_RUN,
    ),
    leaving(
        "leases",
        "guard_lease_left",
        "a lease goes only when its attempt has ended and its run is placed",
        vanishes(Status.RUNNING),
    ),
    mutant(
        "created-once",
        "a run that exists is not created again",
        "new_traceparent, new_deduplicates);",
        "new_traceparent, new_deduplicates) on conflict do nothing;",
        by_hand("test_schema_moves::test_run_that_exists_is_not_created_again", old=Status.FAILED),
    ),
    mutant(
        "creating-within-the-function",
        "the guards are off only while a new run is created",
        "    creating := set_config('holdfast.creating', '', true);\n",
        "",
        by_hand("test_schema_moves::test_guards_apply_again_in_the_transaction_of_a_new_run"),
    ),
    mutant(
        "hand-over-by-hand",
        "the caller of hand_over cannot turn off the guards of its lease",
        "    perform set_config('holdfast.creating', '', true);\n",
        "",
        by_test(
            "test_hand_over::test_guards_reject_the_hand_over_of_an_older_run_even_if_the_caller_turns_them_off",
            status="SUCCEEDED",
        ),
    ),
    mutant(
        "attempts-ending",
        "at most one ending of a run is in force",
        "create unique index attempts_ending",
        "create index attempts_ending",
        moves(Status.FAILED),
    ),
    mutant(
        "attempts-partition",
        "writing to a partition by its own name is no way around the guard",
        "select holdfast.guard_partition('attempts_default');",
        "create or replace function holdfast.guard_partition(name text) returns void language sql as 'select';",
        by_hand("test_schema_moves::test_partition_does_not_bypass_the_rules"),
    ),
]

HISTORY = [
    mutant(
        "runs-never-change",
        "a run is immutable",
        "create trigger runs_never_change before update on holdfast.runs\n    for each row",
        "create trigger runs_never_change before update on holdfast.runs\n    for each row when (false)",
        by_hand("test_schema_shape::test_a_run_is_never_rewritten"),
    ),
    mutant(
        "events-never-change",
        "events are only added",
        "create trigger events_never_change before update on holdfast.events\n    for each row",
        "create trigger events_never_change before update on holdfast.events\n    for each row when (false)",
        by_hand("test_schema_shape::test_events_are_only_added"),
    ),
    mutant(
        "attempts-never-change",
        "an ended attempt only changes by being reopened",
        "when (not (old.reopened_at is null and new.reopened_at is not null)",
        "when (false and not (old.reopened_at is null and new.reopened_at is not null)",
        by_hand("test_schema_shape::test_reopening_cannot_be_undone"),
    ),
    mutant(
        "leases-never-move",
        "a lease stays that of its attempt",
        "when ((old.run_id, old.number, old.excused, old.claimed_at)\n          is distinct from",
        "when ((old.run_id, old.number, old.excused, old.claimed_at)\n          is not distinct from",
        by_hand("test_schema_shape::test_lease_cannot_be_rewritten"),
    ),
    mutant(
        "leases-cancel-stays",
        "a cancel is never taken back",
        "or (old.cancel_requested_at is not null"
        " and new.cancel_requested_at is distinct from old.cancel_requested_at)\n          or",
        "or",
        by_hand("test_schema_shape::test_lease_cannot_be_rewritten"),
    ),
    mutant(
        "ready-never-changes",
        "a ready run cannot be moved ahead in its queue",
        "create trigger ready_never_changes before update on holdfast.ready",
        "create trigger ready_never_changes before truncate on holdfast.ready",
        by_hand("test_schema_shape::test_a_run_is_never_rewritten"),
    ),
    mutant(
        "waiting-never-moves",
        "a waiting run keeps its number",
        "when ((old.run_id, old.number, old.excused) is distinct from (new.run_id, new.number, new.excused))",
        "when (false)",
        WAITING_RUN,
    ),
    mutant(
        "attempts-reopened",
        "a run that is reopened is queued in the same statement",
        "create trigger attempts_reopened after update on holdfast.attempts for each row\n    when (",
        "create trigger attempts_reopened after update on holdfast.attempts for each row\n    when (false and ",
        shortcuts(Status.FAILED),
    ),
    mutant(
        "runs-forgotten",
        "a run is forgotten only when nothing of it is left",
        "create trigger runs_forgotten after delete on holdfast.runs for each row",
        "create trigger runs_forgotten after delete on holdfast.runs for each row when (false)",
        vanishes(Status.PENDING),
    ),
    mutant(
        "attempts-forgotten",
        "attempts are forgotten only together with their run",
        "create trigger attempts_forgotten after delete on holdfast.attempts for each row",
        "create trigger attempts_forgotten after delete on holdfast.attempts for each row when (false)",
        vanishes(Status.SUCCEEDED),
    ),
    mutant(
        "events-forgotten",
        "events are forgotten only together with their run",
        "create trigger events_forgotten after delete on holdfast.events for each row",
        "create trigger events_forgotten after delete on holdfast.events for each row when (false)",
        by_hand("test_schema_shape::test_events_are_only_added"),
    ),
]

SHAPE = [
    mutant(
        "shape-outcome",
        "an attempt that succeeded ends its run SUCCEEDED, and no other does",
        "when 'SUCCEEDED' then outcome is not distinct from 'SUCCEEDED'",
        "when 'SUCCEEDED' then true",
        attempt(
            ", status, outcome, result) "
            "values (1, gen_random_uuid(), now(), now(), %(run)s, 'SUCCEEDED', 'FAILED', '1')"
        ),
    ),
    mutant(
        "shape-result",
        "SUCCEEDED if and only if there is a result",
        "(status = 'SUCCEEDED') = (result is not null or result_ref is not null)",
        "true",
        attempt(", status, outcome) values (1, gen_random_uuid(), now(), now(), %(run)s, 'SUCCEEDED', 'SUCCEEDED')"),
    ),
    mutant(
        "shape-untried",
        "a run that never started can only have been cancelled",
        "else outcome is not distinct from 'CANCELLED' and worker_id is null",
        "else outcome is not null and worker_id is null",
        moves(Status.PENDING),
    ),
    mutant(
        "shape-holder",
        "an attempt has a worker and a time at which it was claimed",
        "when number >= 1 then worker_id is not null and claimed_at is not null",
        "when number >= 1 then true",
        attempt(", status, outcome) values (1, null, now(), now(), %(run)s, 'FAILED', 'FAILED')"),
    ),
    mutant(
        "shape-reopened",
        "a success is never reopened",
        "and (reopened_at is null or outcome in ('FAILED', 'CANCELLED')))",
        ")",
        moves(Status.SUCCEEDED),
    ),
    mutant(
        "shape-stored",
        "a stored result has a size and a hash",
        "and (result_ref is null or (result_size is not null and octet_length(result_sha256) = 32))",
        "",
        attempt(
            ", status, outcome, result_ref) "
            "values (1, gen_random_uuid(), now(), now(), %(run)s, 'SUCCEEDED', 'SUCCEEDED', 'file')"
        ),
    ),
    mutant(
        "clock-is-the-databases",
        "the clock reads no setting, which any role could set",
        "return statement_timestamp();",
        "return coalesce(nullif(current_setting('holdfast.now', true), '')::timestamptz, statement_timestamp());",
        by_hand("test_schema_clock::test_clock_function_has_the_expected_definition"),
    ),
]

MONTHS = [
    mutant(
        "month-live-twice",
        "whether a month is live is checked again once it is locked",
        "            if holdfast.is_live(part.month) then\n                return;\n            end if;\n",
        "",
        Explored("retry+prune@old_failed", at_most=20),
    ),
    mutant(
        "month-key",
        "a month with a run of a key that has not expired stays",
        "where keys.run_id >= low and keys.run_id < high and keys.expires_at > holdfast.now())",
        "where false)",
        by_test("test_prune::test_month_with_an_unexpired_key_is_kept"),
    ),
    mutant(
        "month-job",
        "a month with an open job stays",
        "                     union all select run_id from holdfast.leases\n"
        "                     union all select id from holdfast.jobs where finished_at is null) as live",
        "                     union all select run_id from holdfast.leases) as live",
        by_test("test_prune_leftovers::test_month_with_an_open_job_is_kept"),
    ),
    mutant(
        "month-awaited",
        "a month with a run that a waiting run depends on stays",
        "or holdfast.is_live(part.month) or holdfast.is_awaited(low, high);",
        "or holdfast.is_live(part.month);",
        by_test("test_prune_leftovers::test_month_of_a_dependency_of_a_waiting_run_is_kept"),
    ),
    mutant(
        "month-isolation",
        "a month is dropped only where the second look sees what others committed",
        "    if current_setting('transaction_isolation') <> 'read committed' then\n        raise",
        "    if false then\n        raise",
        by_test(
            "test_prune_leftovers::test_prune_rejects_isolation_levels_other_than_read_committed",
            isolation="serializable",
        ),
    ),
    mutant(
        "sweep-present",
        "the edges of a run that is there are not removed",
        "              and not exists (select from holdfast.runs r where r.id = d.run_id);",
        "              ;",
        by_test("test_prune_leftovers::test_later_run_with_an_id_of_a_dropped_month_keeps_its_edges"),
    ),
    mutant(
        "pruned-is-met",
        "a pruned run keeps no other waiting",
        "return case when outcome = 'PRUNED' then true\n",
        "return case when false then true\n",
        by_test("test_prune_leftovers::test_failed_run_is_retried_after_its_dependency_was_pruned"),
    ),
]
