"""Jobs under the explorer: where a job is before the actors begin, and what they do to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from holdfast import ops
from holdfast.domain.canonical import canonicalize
from holdfast.domain.ids import derived_id, new_id, series
from holdfast.domain.jobs import NewJob, NewMap, Slice
from holdfast.domain.settling import Failed, Outcome, Succeeded, settle
from holdfast.domain.states import Status
from holdfast.domain.values import Claim, Dependency, NewRun, Position
from holdfast.ops.create import CHUNKS, FIRST_TASKS
from holdfast.sql import attempts
from holdfast.sql.statement import Op, Statement, first
from holdfast.testing import clock
from holdfast.testing.explorer.actor import Do, Program
from holdfast.testing.explorer.situations import LEASE, PAST_IT, register
from holdfast.testing.explorer.wire import Session

ERROR = {"class": "Broken", "message": "it broke", "traceback": None}
NOW: Statement[datetime | None] = Statement("select holdfast.now()", {}, first(lambda row: row[0]))


@dataclass(slots=True)
class Case:
    """One job, its runs by name, who holds which, and when a stop was acknowledged."""

    serial: str
    claimers: tuple[str, str]
    job_id: str = field(default_factory=new_id)
    ids: dict[str, str] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    holder: str = ""
    stopped_at: datetime | None = None

    @property
    def queue(self) -> str:
        return f"queue {self.serial}"

    @property
    def map_id(self) -> str:
        return derived_id(self.job_id, "map")

    @property
    def task(self) -> str:
        return f"task {self.serial}"

    def run(self, name: str, *on: Dependency | str, **fields: Any) -> NewRun:
        """A run of the job; dependencies by name."""
        text, payload_hash = canonicalize({"name": name})
        edges = tuple(
            Dependency(self.ids.get(edge[0], edge[0]), edge[1]) if isinstance(edge, Dependency) else self._on(edge)
            for edge in on
        )
        self.ids.setdefault(name, derived_id(self.job_id, name))
        return NewRun(
            **{
                "id": self.ids[name],
                "task": self.task,
                "parameters": text,
                "payload_hash": payload_hash,
                "queue": self.queue,
                "job_id": self.job_id,
                "depends_on": edges,
                **fields,
            }
        )

    def _on(self, name: str) -> Dependency:
        return Dependency(self.map_id if name == "map" else self.ids[name])


# Situations.


class Setting:
    """Brings a job into a situation, by the operations that would have brought it there."""

    def __init__(self, session: Session, case: Case) -> None:
        self.session = session
        self.case = case

    def job(self, **tasks: tuple[Any, ...]) -> Setting:
        """Make the job with its first tasks, each with what it depends on."""
        case = self.case
        case.ids.update(zip(tasks, series(case.job_id, FIRST_TASKS, len(tasks), first=True), strict=True))
        runs = [case.run(name, *on) for name, on in tasks.items()]
        self.session.run(ops.create_job(NewJob(case.job_id, "explored"), runs))
        return self

    def mapped(self, size: int = 2, join: bool = True) -> Setting:
        case = self.case
        names = [f"chunk{n}" for n in range(size)]
        case.ids.update(zip(names, series(case.map_id, CHUNKS, size), strict=True))
        self.session.run(add_map(case, size))
        if join:
            self.session.run(ops.add_tasks([case.run("join", "map")], None))
        return self

    def lease(self, *names: str) -> Setting:
        case = self.case
        case.holder = register(self.session, LEASE)
        for claim in self.session.run(ops.claim(case.holder, [Position(case.queue)], [case.task], len(names))):
            name = next(name for name, id_ in case.ids.items() if id_ == claim.run_id)
            case.claims[name] = claim
        missing = set(names) - set(case.claims)
        if missing:
            raise RuntimeError(f"{missing} could not be leased; leased were {set(case.claims)}")
        return self

    def fail(self, name: str) -> Setting:
        settlement = settle(self.case.claims[name], Failed(ERROR, retryable=False), 0.5)
        self.session.run(ops.finish(self.case.holder, [settlement]))
        return self

    def succeed(self, name: str) -> Setting:
        self.session.run(ops.finish(self.case.holder, [settle(self.case.claims[name], Succeeded("0"), 0.5)]))
        return self

    def stopping(self) -> Setting:
        self.session.run(ops.stop_job(self.case.job_id, Status.CANCELLED, "enough"))
        return self

    def dead(self) -> Setting:
        clock.move(self.session, PAST_IT)
        return self


def add_map(case: Case, size: int) -> Op[bool]:
    head = replace(case.run("map head"), map_id=case.map_id, depends_on=())
    case.ids.pop("map head")
    slices = [Slice(*canonicalize({"chunk": n})) for n in range(size)]
    return ops.add_map(NewMap(case.map_id, case.job_id, None, "{}", size), head, lambda: slices, None, None)


SITUATIONS: dict[str, Callable[[Setting], object]] = {
    "pending": lambda at: at.job(a=(), b=()),
    "last": lambda at: at.job(a=()).lease("a"),
    "two": lambda at: at.job(a=(), b=(), c=("a", "b"), d=(Dependency("a", "always"), "c")).lease("a", "b"),
    "either": lambda at: at.job(a=(), b=(), c=(Dependency("a", "failure"), Dependency("b", "failure"))).lease("a", "b"),
    "map": lambda at: at.job().mapped().lease("chunk0", "chunk1"),
    "bare_map": lambda at: at.job(a=()).mapped(join=False).lease("a", "chunk0", "chunk1"),
    "half_map": lambda at: at.job(a=()).mapped(join=False).lease("a", "chunk0", "chunk1").succeed("chunk0"),
    "failed": lambda at: at.job(a=(), b=(), c=("a", "b"), d=(Dependency("a", "always"), "b")).lease("a", "b").fail("a"),
    "over": lambda at: at.job(a=(), b=("a",)).lease("a").fail("a"),
    "map_failed": lambda at: at.job().mapped().lease("chunk0", "chunk1").fail("chunk0"),
    "stopping": lambda at: at.job(a=(), b=()).lease("a").stopping(),
    "expired": lambda at: at.job(a=(), b=(), c=("a", "b")).lease("a", "b").dead(),
}


# Programs.

Make = Callable[[Case, int], Program]


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    make: Make
    recover: Make | None


def _lone(make_op: Callable[[Case, int], Op[Any]], *, begin: bool = False) -> Make:
    def program(case: Case, who: int) -> Program:
        return (yield Do(lambda: make_op(case, who), begin))

    return program


def _finish(name: str, outcome: Outcome, adds: bool = False) -> Part:
    def make(case: Case, who: int) -> Program:
        settlement = settle(case.claims[name], outcome, 0.5)
        if adds:
            settlement = settlement._replace(adds=(case.run("child", parent_id=case.ids[name]),))
        return (yield Do(lambda: ops.finish(case.holder, [settlement]), True))

    def recover(case: Case, who: int) -> Program:
        ref = case.claims[name].ref
        if ref in (yield Do(lambda: iter(attempts.ended_by(case.holder, [ref])))):
            return None
        return (yield from make(case, who))

    return Part("", make, recover)


def _repeated(make_op: Callable[[Case, int], Op[Any]], *, begin: bool = False) -> Part:
    make = _lone(make_op, begin=begin)
    return Part("", make, make)


def _stop(case: Case, who: int) -> Program:
    yield Do(lambda: ops.stop_job(case.job_id, Status.CANCELLED, "enough"))
    while not (yield Do(lambda: ops.stop_some(case.job_id, "enough"))).done:
        pass
    case.stopped_at = yield Do(lambda: iter(NOW))


def _rescue(case: Case, who: int) -> Program:
    for orphan in (yield Do(lambda: ops.find_orphans(500))):
        if orphan.run_id in case.ids.values():
            yield Do(lambda orphan=orphan: ops.rescue([orphan], 0.5))  # type: ignore[misc]


def _claim(case: Case, who: int) -> Op[Any]:
    return ops.claim(case.claimers[who], [Position(case.queue)], [case.task], 1)


def _waiting_for(name: str, *on: str) -> Part:
    """Add a run that waits for others."""
    return _repeated(lambda case, who: ops.add_tasks([case.run(f"{name}{who}", *on)], None))


_PARTS: dict[str, Part] = {
    "succeed_a": _finish("a", Succeeded("1")),
    "succeed_b": _finish("b", Succeeded("2")),
    "fail_a": _finish("a", Failed(ERROR, retryable=False)),
    "fail_b": _finish("b", Failed(ERROR, retryable=False)),
    "crash_a": _finish("a", Failed(ERROR, reason="crash")),
    "adding_a": _finish("a", Succeeded("1"), adds=True),
    "chunk0": _finish("chunk0", Succeeded("0")),
    "chunk1": _finish("chunk1", Succeeded("1")),
    "fail_chunk1": _finish("chunk1", Failed(ERROR, retryable=False)),
    "add": _repeated(lambda case, who: ops.add_tasks([case.run(f"added{who}")], None)),
    "add_same": _repeated(lambda case, who: ops.add_tasks([case.run("same")], None)),
    "add_held": _repeated(
        lambda case, who: ops.add_tasks([case.run(f"held{who}", parent_id=case.ids["a"])], case.claims["a"].ref)
    ),
    "after_a": _waiting_for("after_a", "a"),
    "after_c": _waiting_for("after_c", "c"),
    "join": _repeated(lambda case, who: ops.add_join(case.run("join", "map"), None)),
    "map": _repeated(lambda case, who: add_map(case, 2)),
    "stop": Part("", _stop, _stop),
    "stop_twice": Part("", _stop, _stop),
    "claim": Part("", _lone(_claim, begin=True), None),
    "cancel_a": _repeated(lambda case, who: ops.cancel(case.ids["a"], "not this one")),
    "cancel_c": _repeated(lambda case, who: ops.cancel(case.ids["c"], "not this one")),
    "retry": Part("", _lone(lambda case, who: ops.retry_failed_tasks(case.job_id, f"person {who}")), None),
    "retry_a": Part("", _lone(lambda case, who: ops.retry(case.ids["a"], f"person {who}")), None),
    "heal": _repeated(lambda case, who: ops.heal_dependencies()),
    "rescue": Part("", _rescue, _rescue),
}
PROGRAMS = {name: replace(part, name=name) for name, part in _PARTS.items()}

# Who meets whom, where.
_MEETINGS = """
    claim+claim@pending claim+stop@pending claim+add@pending claim+cancel_a@pending
    add+stop@pending add_same+add_same@pending map+stop@pending map+map@pending stop+stop_twice@pending
    cancel_a+stop@pending

    succeed_a+add@last succeed_a+add_held@last succeed_a+stop@last adding_a+stop@last adding_a+add@last
    succeed_a+after_a@last fail_a+after_a@last crash_a+stop@last crash_a+after_a@last fail_a+stop@last
    add+stop@last succeed_a+map@last adding_a+adding_a@last cancel_a+add_held@last cancel_a+after_a@last

    succeed_a+succeed_b@two fail_a+succeed_b@two fail_a+fail_b@two succeed_a+cancel_c@two fail_a+cancel_c@two
    fail_a+after_a@two fail_a+after_c@two cancel_c+after_c@two succeed_a+heal@two fail_a+heal@two succeed_a+stop@two
    succeed_a+add_held@two cancel_a+add_held@two succeed_a+after_a@two
    fail_a+stop@two after_c+stop@two heal+heal@two cancel_a+succeed_b@two cancel_a+fail_b@two
    fail_a+fail_b@either succeed_a+fail_b@either

    chunk0+chunk1@map chunk0+fail_chunk1@map chunk0+stop@map chunk0+heal@map
    chunk0+chunk1@bare_map chunk0+join@bare_map join+join@bare_map succeed_a+join@bare_map
    chunk1+join@half_map fail_chunk1+join@half_map

    succeed_b+retry@failed fail_b+retry@failed retry+retry@failed retry+stop@failed retry+heal@failed
    retry+after_a@failed retry_a+retry@failed succeed_b+retry_a@failed retry+after_c@failed retry_a+fail_b@failed
    retry+retry@over retry+add@over retry+stop@over retry+retry_a@over
    chunk1+retry@map_failed fail_chunk1+retry@map_failed retry+stop@map_failed

    stop+claim@stopping succeed_a+stop@stopping crash_a+stop@stopping add+stop@stopping adding_a+stop@stopping
    rescue+rescue@expired rescue+stop@expired rescue+after_a@expired rescue+cancel_a@expired rescue+heal@expired
"""
MEETINGS = _MEETINGS.split()
