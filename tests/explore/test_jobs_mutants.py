"""Guards of jobs, each taken away: the explorer notices every one of them."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from itertools import islice

import psycopg
import pytest

from holdfast.testing.databases import scratch
from holdfast.testing.explorer import search
from holdfast.testing.explorer.mutation import SCHEMA, SQL, Mutation, Rewriting, migrate, mutated
from holdfast.testing.explorer.schedule import parse
from holdfast.testing.explorer.stage import Crashes, Violation
from holdfast.testing.explorer.wire import unchanged
from tests.explore.catching import install_clock
from tests.explore.jobs_stage import JobStage

AT_MOST = 400
CONCLUDE, CREATE, DEPEND = "holdfast.ops.conclude", "holdfast.ops.create", "holdfast.ops.depend"
STOP, RETRY, CANCEL = "holdfast.ops.stop", "holdfast.ops.retry", "holdfast.ops.cancel"

# A name, the guard, where it is, what is taken away, what is put there, and the meeting that notices.
_MUTANTS = [
    (
        "hold-running",
        "what a new run waits for cannot end before the run is there",
        SQL,
        "from holdfast.leases where run_id = any(%(ids)s::uuid[]) order by run_id for key share",
        "from holdfast.leases where run_id = any(%(ids)s::uuid[])",
        "succeed_a+after_a@two",
    ),
    (
        "hold-waiting",
        "the same for one that is itself still waiting",
        SQL,
        "from holdfast.waiting where run_id = any(%(ids)s::uuid[]) order by run_id for key share",
        "from holdfast.waiting where run_id = any(%(ids)s::uuid[])",
        "cancel_c+after_c@two",
    ),
    (
        "hold-map",
        "the same for a map",
        SQL,
        "from holdfast.maps where id = any(%(ids)s::uuid[]) order by id for share",
        "from holdfast.maps where id = any(%(ids)s::uuid[])",
        "chunk1+join@half_map",
    ),
    (
        "hold-ended",
        "what a new run depends on, and has ended, cannot be reopened before the run is there",
        SQL,
        "and outcome is not null and reopened_at is null\n            order by run_id for key share",
        "and outcome is not null and reopened_at is null",
        "retry+after_a@failed",
    ),
    (
        "grow-ended",
        "nothing is added to a job that has ended",
        SQL,
        "and finished_at is null and cancel_requested_at is null\n            returning id",
        "returning id",
        "succeed_a+add@last",
    ),
    (
        "grow-stopping",
        "nothing is added to a job that was asked to stop",
        SQL,
        "and finished_at is null and cancel_requested_at is null\n            returning id",
        "and finished_at is null\n            returning id",
        "add+stop@last",
    ),
    (
        "stop-until-nothing-can-start",
        "a stop is acknowledged only when one look finds nothing that could start",
        STOP,
        "return Stopped(not (yield from stopping.startable(job_id)), workers)",
        "return Stopped(True, workers)",
        "crash_a+stop@last",
    ),
    (
        "stop-counts",
        "what a stop ends is counted",
        STOP,
        "        yield from conclude(ended)\n",
        "",
        "add+stop@pending",
    ),
    (
        "cancel-concludes",
        "cancelling a pending run decides about those who wait for it",
        CANCEL,
        "            yield from conclude(ended)\n",
        "            pass\n",
        "succeed_a+cancel_c@two",
    ),
    (
        "attempt-holds",
        "a task adds only while it holds its lease",
        CREATE,
        "    if by is not None:\n        yield from hold_attempt(by)\n    return (yield from submit_many(tasks))",
        "    return (yield from submit_many(tasks))",
        "succeed_a+add_held@two",
    ),
    (
        "follow-up",
        "whoever began to wait for a run while it ended is decided about",
        CONCLUDE,
        "(yield from dependencies.recount(held)) if held else []",
        "[]",
        "fail_a+after_c@two",
    ),
    (
        "link-recounts",
        "a run that depends on one that has ended is decided about at once",
        DEPEND,
        "    if late:\n",
        "    if late and not late:\n",
        "succeed_a+after_a@two",
    ),
    (
        "reopen-holds",
        "what a reopened run waits for cannot end while it is counted",
        RETRY,
        "    states = yield from hold(set(awaited) - set(held), pruned=True)\n",
        "    states: dict[str, str | None] = {}\n",
        "fail_b+retry@failed",
    ),
    (
        "reopen-dependents",
        "whoever still waits for a reopened run waits for it again",
        RETRY,
        "    dependents = yield from dependencies.hold_dependents([*(run.run_id for run in back), *opened])\n",
        "    dependents: list[str] = []\n",
        "retry+heal@failed",
    ),
    (
        "reopen-maps",
        "a map is open again when one of its runs is",
        RETRY,
        "            opened.update((yield from maps.unsettle(mapped)))\n",
        "            pass\n",
        "chunk1+retry@map_failed",
    ),
    (
        "reopen-followers",
        "what a failed run kept from starting is open again with it, also if that was found out just now",
        RETRY,
        "        asked.update(fresh)\n",
        "        asked.update(fresh)\n        break\n",
        "chunk1+retry@map_failed",
    ),
    (
        "maps-count",
        "a map counts the endings of its runs",
        CONCLUDE,
        "    return (yield from maps.settle(counts)) if counts else []\n",
        "    return []\n    yield\n",
        "chunk0+chunk1@map",
    ),
    (
        "jobs-start",
        "a job starts with its first claim",
        SCHEMA,
        "    if ids <> '{}' then\n        with held",
        "    if ids = '{}' then\n        with held",
        "claim+claim@pending",
    ),
    (
        "met-endings",
        "an ending that is not the one that was waited for dooms",
        SQL,
        "where not holdfast.meets(ended.outcome, dependencies.policy)",
        "where ended.id is null",
        "fail_a+succeed_b@two",
    ),
    (
        "decide-holds",
        "two endings that one run waits for count one after the other",
        SQL,
        "order by waiting.run_id for update\n        )",
        "order by waiting.run_id\n        )",
        "succeed_a+succeed_b@two",
    ),
    (
        "blocked-only",
        "a run that was released stays released, whatever its dependency does later",
        SQL,
        "and (decision.reason is not null or (decision.blockers = 0 and waiting.due_at <= holdfast.now()))",
        "and (decision.reason is not null or (decision.blockers <= 1 and waiting.due_at <= holdfast.now()))",
        "succeed_a+succeed_b@two",
    ),
    (
        "broken-jobs",
        "a stopped job ends as it was told to",
        SQL,
        "then coalesce(jobs.stop_outcome, case",
        "then coalesce(null, case",
        "succeed_a+stop@last",
    ),
]
MUTANTS = {name: (Mutation(name, guard, where, old, new), parse(f"{met}:").meeting)
           for name, guard, where, old, new, met in _MUTANTS}  # fmt: skip


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_missing_guard_is_noticed(stage_url: str, server_url: str, name: str) -> None:
    mutation, meeting = MUTANTS[name]
    rewriting = Rewriting(mutation) if mutation.where == SQL else unchanged
    with ExitStack() as stack:
        if mutation.where == SCHEMA:
            stage_url = stack.enter_context(scratch(server_url))
            migrate(stage_url, mutation)
            install_clock(stage_url)
        elif mutation.where != SQL:
            stack.enter_context(mutated(mutation))
        stage = JobStage(stage_url, rewriting, batch=4)
        try:
            plays = partial(stage.play, meeting, Crashes.NONE)
            for _ in islice(search.sampled(plays, name, AT_MOST, 1), AT_MOST):
                if stage.violations:
                    break
            stage.judge()
        except psycopg.Error as error:
            stage.violations.append(Violation(str(meeting), "the database refuses", str(error)))
        finally:
            stage.close()
    if isinstance(rewriting, Rewriting):
        assert rewriting.changed, f"no statement had\n{mutation.old}"
    assert stage.violations, f"nobody noticed that {mutation.guard} no longer holds"
