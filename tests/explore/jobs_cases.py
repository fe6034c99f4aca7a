"""Jobs under the explorer: the state of a job before the actors start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from holdfast import ops
from holdfast.domain.canonical import canonicalize
from holdfast.domain.ids import derived_id, new_id, series, slice_ids
from holdfast.domain.jobs import Mapped, NewJob, NewMap, Slice
from holdfast.domain.settling import Failed, Outcome, Succeeded, settle
from holdfast.domain.states import Status
from holdfast.domain.values import Claim, Dependency, KnownAs, NewRun, Position
from holdfast.ops import outbox
from holdfast.ops.create import FIRST_TASKS
from holdfast.sql import jobs, leases, tallies
from holdfast.sql.jobs import Move
from holdfast.sql.statement import Op
from holdfast.sql.subscriptions import NewSubscription
from holdfast.testing import clock
from tests.explorer.situations import LEASE, PAST_IT, register
from tests.explorer.wire import Session

ERROR = {"class": "Broken", "message": "it broke", "traceback": None}
UNCRITICAL = '{"critical": false}'
HEALED = ("miscounted", "forgotten", "forgotten_failure")  # where a count is wrong until it is healed


@dataclass(slots=True)
class Case:
    """One job, its runs by name, their holders, and what the actors recorded.

    `complaints` are those of programs that noticed something themselves.
    """

    serial: str
    claimers: tuple[str, str]
    job_id: str = field(default_factory=new_id)
    ids: dict[str, str] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    holder: str = ""
    stopped_at: datetime | None = None
    subscribed: bool = False
    open_then: set[str] | None = None  # the runs that had not ended after the subscription was acknowledged
    ended_then: set[str] = field(default_factory=set)  # those that had ended before it was requested
    holding: set[int] = field(default_factory=set)  # which actors hold the subscription to deliver for it
    removed: list[str] = field(default_factory=list)  # the resources that actors took to remove
    keyed: dict[int, str] = field(default_factory=dict)  # the ids of the jobs that each actor requests with the key
    complaints: list[str] = field(default_factory=list)

    @property
    def subscription(self) -> str:
        return f"subscription {self.serial}"

    def new_subscription(self) -> NewSubscription:
        return NewSubscription(new_id(), self.subscription, "redis", "stream", None, {"queue": [self.queue]})

    @property
    def key(self) -> str:
        return f"key {self.serial}"

    @property
    def task(self) -> str:
        return f"task {self.serial}"

    @property
    def queue(self) -> str:
        return f"queue {self.serial}"

    @property
    def map_id(self) -> str:
        return derived_id(self.job_id, "map")

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
    """Brings a job into a situation by the operations that lead to it."""

    def __init__(self, session: Session, case: Case) -> None:
        self.session = session
        self.case = case

    def job(self, *, uncritical: Sequence[str] = (), **tasks: tuple[Any, ...]) -> Setting:
        """Create the job with its first tasks and their dependencies."""
        case = self.case
        case.ids.update(zip(tasks, series(case.job_id, FIRST_TASKS, len(tasks), first=True), strict=True))
        policies = {name: {"policy": UNCRITICAL} for name in uncritical}
        runs = [case.run(name, *on, **policies.get(name, {})) for name, on in tasks.items()]
        self.session.run(ops.create_job(NewJob(case.job_id, "explored"), runs))
        if not runs:
            self.session.run(iter(jobs.stop_holding(case.job_id)))
        return self

    def mapped(self, size: int = 2, join: bool = True) -> Setting:
        case = self.case
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

    def unstart(self) -> Setting:
        """Put the job into the state after its first run was claimed while it was locked: not started, and noted."""
        self.session.execute("set session_replication_role = replica")
        self.session.execute(
            """
            with unstarted as (
                update holdfast.jobs set started_at = null where id = %(job_id)s::uuid returning id
            )
            insert into holdfast.late_starts (job_id, at) select id, holdfast.now() from unstarted
            """,
            {"job_id": self.case.job_id},
        )
        self.session.execute("reset session_replication_role")
        return self

    def fail(self, name: str) -> Setting:
        settlement = settle(self.case.claims[name], Failed(ERROR, retryable=False), 0.5)
        self.session.run(ops.finish(self.case.holder, [settlement]))
        return self

    def succeed(self, name: str) -> Setting:
        self.session.run(ops.finish(self.case.holder, [settle(self.case.claims[name], Succeeded("0"), 0.5)]))
        return self

    def forget(self, name: str, outcome: Outcome) -> Setting:
        """End a run without updating its dependents, which only a bug could cause."""
        settlement = settle(self.case.claims.pop(name), outcome, 0.5)
        (ack,) = self.session.run(iter(leases.settle(self.case.holder, [settlement])))
        self.session.run(iter(tallies.add({(settlement.task, ack.outcome, 0): (1, 0.0)}, [])))
        failed = ack.outcome == "FAILED"
        move = Move(failed=1, broken=1) if failed else Move(succeeded=1)
        self.session.run(iter(jobs.settle({self.case.job_id: move})))
        return self

    def miscount(self, name: str) -> Setting:
        """Make the count of a run's blockers too high by one."""
        self.session.execute(
            "update holdfast.waiting set blockers = blockers + 1 where run_id = %(run_id)s::uuid",
            {"run_id": self.case.ids[name]},
        )
        return self

    def subscribe(self) -> Setting:
        self.case.subscribed = True
        self.session.run(outbox.add_subscription(self.case.new_subscription()))
        return self

    def fan_out(self) -> Setting:
        self.session.run(outbox.fan_out())
        return self

    def add_resource(self, name: str) -> Setting:
        self.session.run(ops.add_resource(self.case.job_id, resource_named(name), False))
        return self

    def stopping(self) -> Setting:
        self.session.run(ops.stop_job(self.case.job_id, Status.CANCELLED, "enough"))
        return self

    def stopped(self) -> Setting:
        self.stopping()
        while not self.session.run(ops.stop_some(self.case.job_id, "enough")).done:
            pass
        return self

    def reclaim(self, name: str) -> Setting:
        """Let a run be lost and claimed again while its first attempt, `old`, continues."""
        self.dead()
        old = self.case.claims.pop(name)
        for orphan in self.session.run(ops.find_orphans(500)):
            if orphan.run_id == old.run_id:
                self.session.run(ops.rescue([orphan], 0.5))
        clock.move(self.session, timedelta(hours=1))
        self.session.run(ops.promote(10_000))
        self.lease(name)
        self.case.claims["old"] = old
        return self

    def dead(self) -> Setting:
        clock.move(self.session, PAST_IT)
        return self


def resource_named(name: str) -> str:
    return f'{{"table": "{name}"}}'


def add_map(case: Case, size: int, known_as: KnownAs | None = None) -> Op[Mapped]:
    head = replace(case.run("map head"), map_id=case.map_id, depends_on=())
    case.ids.pop("map head")
    if known_as is None:
        names = [f"chunk{n}" for n in range(size)]
        case.ids.update(zip(names, slice_ids(case.map_id, size), strict=True))
    slices = [Slice(*canonicalize({"chunk": n})) for n in range(size)]
    new = NewMap(case.map_id, case.job_id, None, "{}", size, known_as, {"size": size})
    return ops.add_map(new, head, lambda _: slices, None, None)


SITUATIONS: dict[str, Callable[[Setting], object]] = {
    "pending": lambda at: at.job(a=(), b=()),
    "last": lambda at: at.job(a=()).lease("a"),
    "noted": lambda at: at.job(a=(), b=()).lease("a").unstart(),
    "noted_last": lambda at: at.job(a=()).lease("a").unstart(),
    "two": lambda at: at.job(a=(), b=(), c=("a", "b"), d=(Dependency("a", "always"), "c")).lease("a", "b"),
    "either": lambda at: at.job(a=(), b=(), c=(Dependency("a", "failure"), Dependency("b", "failure"))).lease("a", "b"),
    "map": lambda at: at.job().mapped().lease("chunk0", "chunk1"),
    "bare_map": lambda at: at.job(a=()).mapped(join=False).lease("a", "chunk0", "chunk1"),
    "half_map": lambda at: at.job(a=()).mapped(join=False).lease("a", "chunk0", "chunk1").succeed("chunk0"),
    "failed": lambda at: at.job(a=(), b=(), c=("a", "b"), d=(Dependency("a", "always"), "b")).lease("a", "b").fail("a"),
    "over": lambda at: at.job(a=(), b=("a",)).lease("a").fail("a"),
    "loose": lambda at: at.job(a=(), b=(), uncritical=("a",)).lease("a", "b").fail("a"),
    "miscounted": lambda at: at.job(a=(), b=(), c=("a", "b"), d=("c",)).lease("a", "b").miscount("c"),
    "forgotten": lambda at: at.job(a=(), b=(), c=("a", "b"), d=("c",)).lease("a", "b").forget("a", Succeeded("0")),
    "forgotten_failure": lambda at: (
        at.job(a=(), b=(), c=("a", "b"), d=("c",)).lease("a", "b").forget("a", Failed(ERROR, retryable=False))
    ),
    "kept": lambda at: at.job(a=()).lease("a").add_resource("kept"),
    "ended": lambda at: at.job(a=()).lease("a").add_resource("kept").succeed("a"),
    "unsubscribed": lambda at: at.job(a=(), b=()).lease("a"),
    "subscribed": lambda at: at.subscribe().job(a=(), b=()).lease("a"),
    "event_pending": lambda at: at.subscribe().job(a=(), b=()).lease("a").succeed("a"),
    "published": lambda at: at.subscribe().job(a=(), b=()).lease("a").succeed("a").fan_out(),
    "map_failed": lambda at: at.job().mapped().lease("chunk0", "chunk1").fail("chunk0"),
    "stopping": lambda at: at.job(a=(), b=()).lease("a").stopping(),
    "stopped": lambda at: at.job(a=(), b=("a",)).stopped(),
    "after_all": lambda at: at.job(a=(), b=(), c=("a", "b"), d=(Dependency("c", "always"),)).lease("a", "b"),
    "reclaimed": lambda at: at.job(a=()).lease("a").reclaim("a"),
    "expired": lambda at: at.job(a=(), b=(), c=("a", "b")).lease("a", "b").dead(),
}
