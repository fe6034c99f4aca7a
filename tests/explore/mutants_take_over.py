"""Guards of take-overs: a lease moves once, and afterwards only its new holder may write."""

from __future__ import annotations

from tests.explore.catching import Explored, Mutant
from tests.explore.mutants_release import RELEASING
from tests.explore.mutants_sql import ALIVE, HELD, SETTLING, SUCCEEDING, by_test, mutant
from tests.explorer.mutation import SCHEMA, Mutation

MOVING = "'TAKEN_OVER', 'from worker '"

MOVES: list[Mutant] = [
    mutant(
        "take-over-worker",
        "a take-over names the worker that submitted it: a released run may be claimed again under the same number",
        "and leases.worker_id = %(claimed_by)s::uuid",
        "",
        by_test("test_take_over::test_attempt_is_taken_over_only_from_the_worker_that_holds_it"),
        within=MOVING,
    ),
    mutant(
        "take-over-once",
        "a lease that was taken over is not taken over again",
        "and leases.claimed_by is null",
        "",
        by_test("test_take_over::test_attempt_is_taken_over_once"),
        within=MOVING,
    ),
    mutant(
        "take-over-from-anyone",
        "an entrypoint that is started twice runs once",
        "and leases.worker_id = %(claimed_by)s::uuid\n              and leases.claimed_by is null",
        "",
        Explored("take_over+take_over@leased"),
        within=MOVING,
    ),
    mutant(
        "take-over-cancelled",
        "a run that was cancelled is not begun",
        "and leases.cancel_requested_at is null",
        "",
        Explored("take_over+cancel@leased"),
        within=MOVING,
    ),
    mutant(
        "take-over-number",
        "a job of an earlier attempt does not take a later one over",
        "and leases.number = %(number)s",
        "",
        by_test("test_take_over::test_attempt_that_has_been_retried_is_not_taken_over"),
        within=MOVING,
    ),
    mutant(
        "take-over-alive",
        "a worker takes over only while it is alive",
        ALIVE,
        "workers.id = %(worker_id)s::uuid",
        by_test("test_take_over::test_expired_worker_cannot_take_over_an_attempt"),
        within=MOVING,
    ),
    mutant(
        "taken-worker",
        "only the worker that took the attempt over is given it",
        HELD,
        "",
        Explored("take_over+take_over@leased"),
        within="and leases.claimed_by = %(claimed_by)s::uuid",
    ),
    mutant(
        "describe-fence",
        "the worker that claimed a run describes it no more once another process has it",
        HELD,
        "",
        by_test("test_take_over::test_attempt_shows_where_it_is_executed"),
        within="set details = (coalesce(leases.details::jsonb, '{}') || %(details)s::jsonb)::json",
    ),
]

OTHERS: list[Mutant] = [
    mutant(
        "rescue-taken-over",
        "a rescue that waited for a take-over does not lose what the new holder has",
        "and leases.worker_id = any(%(holders)s::uuid[])",
        "",
        Explored("take_over+rescue@expired"),
        within=SETTLING,
    ),
    mutant(
        "succeed-taken-over",
        "the worker that claimed a run does not end it once another process has it",
        HELD,
        "",
        Explored("succeed+take_over@leased"),
        within=SUCCEEDING,
    ),
    mutant(
        "settle-taken-over",
        "the worker that claimed a run does not fail it or hand it back once another process has it",
        HELD,
        "",
        Explored("hand_back+take_over@leased"),
        within=SETTLING,
    ),
    mutant(
        "release-taken-over",
        "the worker that claimed a run does not release it once another process has it",
        HELD,
        "",
        Explored("release+take_over@leased"),
        within=RELEASING,
    ),
]


def code(name: str, guard: str, old: str, new: str, meeting: str) -> Mutant:
    return Mutant(Mutation(name, guard, "holdfast.ops.take_over", old, new), Explored(meeting))


CODE: list[Mutant] = [
    code(
        "take-over-refusal",
        "a refused take-over is recorded",
        "    if claim is None:\n",
        "    if not ref:\n",
        "take_over+take_over@leased",
    ),
    code(
        "take-over-counted",
        "a refused take-over is counted",
        '    yield from tallies.add({(refused.task, "fenced", 0): (1, 0.0)}, [])\n',
        "",
        "take_over+take_over@leased",
    ),
]


def schema(name: str, guard: str, old: str, new: str, test: str, **arguments: str) -> Mutant:
    return Mutant(Mutation(name, guard, SCHEMA, old, new), by_test(f"test_take_over::{test}", **arguments))


ANY_MOVE = "test_database_refuses_every_other_move_of_a_lease"
MIDDLE = "                   or new.worker_id = old.worker_id\n"
SCHEMAS: list[Mutant] = [
    schema(
        "leases-move-once",
        "the database refuses a second move of a lease",
        "and (old.claimed_by is not null\n                   or new",
        "and (new",
        "test_database_refuses_a_second_move_of_a_lease",
    ),
    schema(
        "leases-move-from-the-claimant",
        "a lease that moves says from whom",
        "or new.claimed_by is distinct from old.worker_id\n",
        "\n",
        ANY_MOVE,
        change="worker_id = %(other)s, claimed_by = %(other)s",
    ),
    schema(
        "leases-move-to-another",
        "no worker takes a lease over from itself",
        MIDDLE,
        "",
        ANY_MOVE,
        change="claimed_by = worker_id",
    ),
    schema(
        "leases-move-uncancelled",
        "a cancelled lease does not move",
        "\n                   or new.cancel_requested_at is not null)))",
        ")))",
        ANY_MOVE,
        change="worker_id = %(other)s, claimed_by = worker_id, cancel_requested_at = holdfast.now()",
    ),
    schema(
        "leases-move-to-the-living",
        "a lease moves only to a worker that is there",
        "when (old.worker_id is distinct from new.worker_id)",
        "when (false)",
        "test_database_refuses_to_move_a_lease_to_a_deregistered_worker",
    ),
]
