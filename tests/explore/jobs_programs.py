"""What actors do to a job: each operation as in production, and what its caller does without a response."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast import ops
from holdfast.domain.ids import slice_ids
from holdfast.domain.settling import Failed, Outcome, Succeeded, settle
from holdfast.domain.states import Status
from holdfast.domain.values import Acknowledgement, KnownAs, Position, Settlement
from holdfast.sql import attempts, jobs
from holdfast.sql.statement import Op, Statement, first
from tests.explore.jobs_cases import ERROR, Case, add_map
from tests.explorer.actor import Do, Program

NOW: Statement[datetime | None] = Statement("select holdfast.now()", {}, first(lambda row: row[0]))
STOP_ROUNDS = 20
FAILED = Failed(ERROR, retryable=False)

Make = Callable[[Case, int], Program]


@dataclass(frozen=True, slots=True)
class Part:
    """A program by name. `does` says which answers are checked, `names` the runs that it is about."""

    make: Make
    recover: Make | None
    does: str = ""
    names: tuple[str, ...] = ()


def lone(make_op: Callable[[Case, int], Op[Any]], *, begin: bool = False) -> Make:
    def program(case: Case, who: int) -> Program:
        return (yield Do(lambda: make_op(case, who), begin))

    return program


def repeated(does: str, make_op: Callable[[Case, int], Op[Any]], *names: str, begin: bool = False) -> Part:
    """A request that is repeated if its response was lost."""
    make = lone(make_op, begin=begin)
    return Part(make, make, does, names)


def once(does: str, make_op: Callable[[Case, int], Op[Any]], *names: str, begin: bool = False) -> Part:
    """A request whose caller does not repeat it."""
    return Part(lone(make_op, begin=begin), None, does, names)


# Workers.


def _finish(*ways: tuple[str, Outcome], adds: bool = False) -> Part:
    """End runs in one transaction. Without a response, check which outcomes were stored and repeat the others."""

    def settlements(case: Case) -> list[Settlement]:
        made = [settle(case.claims[name], outcome, 0.5) for name, outcome in ways]
        if adds:
            name = ways[0][0]
            made[0] = made[0]._replace(adds=(case.run("child", parent_id=case.ids[name]),))
        return made

    def make(case: Case, who: int) -> Program:
        return (yield Do(lambda: ops.finish(case.holder, settlements(case)), True))

    def recover(case: Case, who: int) -> Program:
        refs = [case.claims[name].ref for name, _ in ways]
        written = yield Do(lambda: iter(attempts.ended_by(case.holder, refs)))
        left = [one for one in settlements(case) if one.ref not in written]
        return (yield Do(lambda: ops.finish(case.holder, left), True)) if left else []

    return Part(make, recover, "add_with_success" if adds else "finish", tuple(name for name, _ in ways))


def _rescue(case: Case, who: int) -> Program:
    acks: list[Acknowledgement] = []
    for orphan in (yield Do(lambda: ops.find_orphans(500))):
        if orphan.run_id in case.ids.values():
            acks += yield Do(lambda orphan=orphan: ops.rescue([orphan], 0.5))  # type: ignore[misc]
    return acks


def _claim(case: Case, who: int) -> Op[Any]:
    return ops.claim(case.claimers[who % 2], [Position(case.queue)], [case.task], 1)


# People, and tasks that add tasks.


def _stop(outcome: Status, reason: str, *, begin: bool = False) -> Part:
    """Mark the job, and continue until none of its runs can start. With `begin`, in a longer transaction."""

    def make(case: Case, who: int) -> Program:
        job = yield Do(lambda: ops.stop_job(case.job_id, outcome, reason), begin)
        for _ in range(STOP_ROUNDS):
            if (yield Do(lambda: ops.stop_some(case.job_id, job.reason))).done:
                case.stopped_at = yield Do(lambda: iter(NOW))
                return job
        case.complaints.append(f"{who} could not stop the job in {STOP_ROUNDS} rounds")
        return job

    return Part(make, make, "stop", (str(outcome), reason))


def _adding(name: str, *on: str, **options: Any) -> Part:
    """Add a run to the job, which may wait for others."""
    return repeated("add", lambda case, who: ops.add_tasks([case.run(f"{name}{who}", *on, **options)], None), name)


def _add_held(case: Case, who: int) -> Op[Any]:
    return ops.add_tasks([case.run(f"held{who}", parent_id=case.ids["a"])], case.claims["a"].ref)


def _named(value: str) -> Part:
    """Add a run under a name that other actors may also use, for the same or a different run."""

    def make(case: Case, who: int) -> Program:
        new = case.run(f"named {value}", child_key="x", known_as=KnownAs(case.job_id, "key x"))
        (made,) = yield Do(lambda: ops.add_tasks([new], None))
        case.ids["named"] = made.run.id
        return made

    return Part(make, make, "name", (value,))


def _named_by(claim: str, value: str) -> Part:
    """Add a child under a name of the run `a`, as the attempt with this claim."""

    def make(case: Case, who: int) -> Program:
        a = case.ids["a"]
        new = case.run(f"named {value}", parent_id=a, child_key="x", known_as=KnownAs(a, "key x"))
        (made,) = yield Do(lambda: ops.add_tasks([new], case.claims[claim].ref))
        case.ids["named"] = made.run.id
        return made

    return Part(make, make, "name", (value, claim))


def _named_map(size: int) -> Part:
    """Map under a name that other actors may also use."""

    def make(case: Case, who: int) -> Program:
        mapped = yield Do(lambda: add_map(case, size, KnownAs(case.job_id, "map key x")))
        case.ids.update(zip([f"named chunk{n}" for n in range(size)], slice_ids(mapped.map.id, size), strict=True))
        return mapped

    return Part(make, make, "name_map", (str(size),))


PROGRAMS: dict[str, Part] = {
    "succeed_a": _finish(("a", Succeeded("1"))),
    "succeed_b": _finish(("b", Succeeded("2"))),
    "fail_a": _finish(("a", FAILED)),
    "fail_b": _finish(("b", FAILED)),
    "fail_again_a": _finish(("a", Failed(ERROR))),
    "crash_a": _finish(("a", Failed(ERROR, reason="crash"))),
    "adding_a": _finish(("a", Succeeded("1")), adds=True),
    "chunk0": _finish(("chunk0", Succeeded("0"))),
    "chunk1": _finish(("chunk1", Succeeded("1"))),
    "fail_chunk1": _finish(("chunk1", FAILED)),
    "both": _finish(("a", Succeeded("1")), ("b", Succeeded("2"))),
    "both_ways": _finish(("b", FAILED), ("a", Succeeded("1"))),
    "both_fail": _finish(("a", FAILED), ("b", FAILED)),
    "chunks": _finish(("chunk0", Succeeded("0")), ("chunk1", FAILED)),
    "add": _adding("added"),
    "add_same": repeated("add", lambda case, who: ops.add_tasks([case.run("same")], None), "same"),
    "add_held": repeated("add", _add_held, "held"),
    "after_a": _adding("after_a", "a"),
    "after_c": _adding("after_c", "c"),
    "join": repeated("add", lambda case, who: ops.add_join(case.run("join", "map"), None), "join"),
    "map": repeated("map", lambda case, who: add_map(case, 2)),
    "name": _named("one"),
    "name_other": _named("another"),
    "name_as_a": _named_by("a", "one"),
    "name_other_as_a": _named_by("a", "another"),
    "name_as_old": _named_by("old", "one"),
    "name_other_as_old": _named_by("old", "another"),
    "name_map": _named_map(2),
    "name_other_map": _named_map(1),
    "stop": _stop(Status.CANCELLED, "enough"),
    "stop_late": _stop(Status.FAILED, "timed out"),
    "stop_slowly": _stop(Status.CANCELLED, "slowly", begin=True),
    "go_on_stopping": repeated("go_on", lambda case, who: ops.stop_some(case.job_id, "enough")),
    "claim": once("claim", _claim, begin=True),
    "cancel_a": repeated("cancel", lambda case, who: ops.cancel(case.ids["a"], "not this one"), "a"),
    "cancel_b": repeated("cancel", lambda case, who: ops.cancel(case.ids["b"], "not this one"), "b"),
    "cancel_c": repeated("cancel", lambda case, who: ops.cancel(case.ids["c"], "not this one"), "c"),
    "retry": once("retry_job", lambda case, who: ops.retry_failed_tasks(case.job_id, f"person {who}")),
    "retry_a": once("retry", lambda case, who: ops.retry(case.ids["a"], f"person {who}"), "a"),
    "heal": repeated("heal", lambda case, who: ops.heal_dependencies()),
    "start_late": repeated("start_late", lambda case, who: iter(jobs.start_late(1000))),
    "rescue": Part(_rescue, _rescue, "rescue"),
}
