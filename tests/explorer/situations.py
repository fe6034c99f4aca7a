"""The state of the run before the actors start."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import sha256

from holdfast import ops
from holdfast.domain.doorbell import LISTENING, Address
from holdfast.domain.ids import new_id, new_ids
from holdfast.domain.settling import Failed, Succeeded, settle
from holdfast.domain.values import NewRun, Position, WorkerInfo
from holdfast.sql import queues, take_over, waiting_workers, workers
from holdfast.testing import clock
from tests.explorer.programs import ERROR, Case
from tests.explorer.wire import Session

LEASE = timedelta(seconds=60)
PAST_IT = timedelta(seconds=61)
DELAY = timedelta(seconds=30)
LONG = timedelta(days=10)
ONCE = '{"max_attempts": 1}'


def register(session: Session, lease: timedelta, tasks: tuple[str, ...] | None = None) -> str:
    worker = WorkerInfo(new_id(), "explorer", 1, "explorer", "inline", "0", 1, lease, tasks=tasks)
    session.run(iter(workers.register(worker)))
    return worker.id


class Setting:
    """Brings a run into a situation by the operations that lead to it."""

    def __init__(self, session: Session, case: Case) -> None:
        self.session = session
        self.case = case

    def submit(self, **changes: object) -> Setting:
        self.case.new = replace(self.case.new, **changes)  # type: ignore[arg-type]
        # A key would prevent an old run from being dropped.
        keyed = self.case.month is None or "key_ttl" in changes
        # It takes part in deduplication, so that submit_dedupe has to find it.
        made = replace(self.case.new, dedupe="active")
        self.session.run(ops.submit(made if keyed else replace(made, key=None)))
        return self

    def unname(self) -> Setting:
        """Make the run ready as the previous version does: without its task."""
        self.session.execute(
            """
            with gone as (
                delete from holdfast.ready where run_id = %(run_id)s::uuid
                returning run_id, rank_at, number, excused, ord, queue, job_id, map_id
            )
            insert into holdfast.ready (run_id, rank_at, number, excused, ord, queue, job_id, map_id)
            select run_id, rank_at, number, excused, ord, queue, job_id, map_id from gone
            """,
            {"run_id": self.case.run_id},
        )
        return self

    def lease(self) -> Setting:
        self.case.holder = register(self.session, LEASE)
        claims = self.session.run(ops.claim(self.case.holder, [Position(self.case.new.queue)], [self.case.new.task], 1))
        self.case.claim = claims[0]
        return self

    def wait(self, task: str | None = None) -> Setting:
        """Make a worker wait for a run of this task, or of the case's."""
        tasks = (task or self.case.new.task,)
        waiter = register(self.session, LEASE, tasks)
        self.case.waiters += (waiter,)
        self.case.listener = self.session.pid
        self.session.execute("select pg_advisory_lock(%(listening)s, pg_backend_pid())", {"listening": LISTENING})
        address = Address("holdfast_explorer", self.session.pid)
        self.session.run(iter(waiting_workers.wait(waiter, address, [self.case.new.queue], tasks)))
        return self

    def pause(self) -> Setting:
        self.session.run(iter(queues.pause(self.case.new.queue, "person before", None)))
        return self

    def drain(self) -> Setting:
        self.session.run(iter(workers.drain(self.case.waiters[0])))
        return self

    def stop(self) -> Setting:
        self.session.run(iter(workers.deregister(self.case.waiters[0], settled=True)))
        return self

    def describe(self) -> Setting:
        """Let the attempt say which job will take it over."""
        remote = self.case.remote
        details = {"ray_submission_id": remote.submission_id, "ray_address": self.case.address}
        self.session.run(iter(take_over.describe(self.case.holder, remote.ref, details)))
        return self

    def take_over(self) -> Setting:
        taker = register(self.session, LEASE)
        self.session.run(ops.take_over(taker, self.case.held().ref, self.case.holder))
        self.case.claimant, self.case.holder = self.case.holder, taker
        return self

    def rescue(self) -> Setting:
        found = self.session.run(ops.find_orphans(500))
        self.session.run(ops.rescue([orphan for orphan in found if orphan.run_id == self.case.run_id], 0.5))
        return self

    def fail(self, *, retryable: bool) -> Setting:
        settlement = settle(self.case.held(), Failed(ERROR, retryable=retryable), 0.5)
        self.session.run(ops.finish(self.case.holder, [settlement]))
        return self

    def succeed(self) -> Setting:
        settlement = settle(self.case.held(), Succeeded(result='"before"'), 0.5)
        self.session.run(ops.finish(self.case.holder, [settlement]))
        return self

    def cancel(self) -> Setting:
        self.session.run(ops.cancel(self.case.run_id, "requested before"))
        return self

    def retry(self) -> Setting:
        self.session.run(ops.retry(self.case.run_id, "person before"))
        return self

    def later(self) -> Setting:
        clock.move(self.session, PAST_IT)
        return self

    def dead(self) -> Setting:
        self.case.holder_dies = True
        return self.later()


@dataclass(frozen=True, slots=True)
class Situation:
    """A name, how to set it up, and whether the lease expires or the run becomes due while the actors run."""

    name: str
    arrange: Callable[[Setting], object]
    time_passes: bool = False
    old: bool = False


def _situations() -> dict[str, Situation]:
    plain: dict[str, Callable[[Setting], object]] = {
        "fresh": lambda at: at,
        "ready": lambda at: at.submit(),
        "unnamed": lambda at: at.submit(priority=3).unname(),
        "leased": lambda at: at.submit().lease(),
        "last": lambda at: at.submit(policy=ONCE).lease(),
        "flagged": lambda at: at.submit().lease().cancel(),
        "expired": lambda at: at.submit().lease().dead(),
        "expired_last": lambda at: at.submit(policy=ONCE).lease().dead(),
        "expired_flagged": lambda at: at.submit().lease().cancel().dead(),
        "taken": lambda at: at.submit().lease().take_over(),
        "taken_late": lambda at: at.submit().lease().later().take_over(),
        "taken_flagged": lambda at: at.submit().lease().take_over().cancel(),
        "expired_taken": lambda at: at.submit().lease().take_over().dead(),
        "described": lambda at: at.submit().lease().describe(),
        "remote": lambda at: at.submit().lease().describe().take_over(),
        "remote_flagged": lambda at: at.submit().lease().describe().take_over().cancel(),
        "expired_remote": lambda at: at.submit().lease().describe().take_over().dead(),
        "lost": lambda at: at.submit().lease().dead().rescue(),
        "scheduled": lambda at: at.submit(run_after=DELAY),
        "due": lambda at: at.submit(run_after=DELAY).later(),
        "resting": lambda at: at.submit().lease().fail(retryable=True),
        "rested": lambda at: at.submit().lease().fail(retryable=True).later(),
        "failed": lambda at: at.submit().lease().fail(retryable=False),
        "withdrawn": lambda at: at.submit().cancel(),
        "stopped": lambda at: at.submit().lease().cancel().fail(retryable=True),
        "succeeded": lambda at: at.submit().lease().succeed(),
        "reopened": lambda at: at.submit().lease().fail(retryable=False).retry(),
        "waited": lambda at: at.wait(),
        "waited_twice": lambda at: at.wait().wait(),
        "waited_ready": lambda at: at.wait().submit(),
        "waited_paused": lambda at: at.wait().pause(),
        "waited_other": lambda at: at.wait("another task"),
        "waited_expired": lambda at: at.wait().later(),
        "waited_drained": lambda at: at.wait().drain(),
        "waited_stopped": lambda at: at.wait().stop(),
        "key_expired": lambda at: at.submit(key_ttl=DELAY).lease().succeed().later(),
    }
    known = [Situation(name, arrange) for name, arrange in plain.items()]
    known += [
        Situation("expiring", lambda at: _dying(at.submit().lease()), time_passes=True),
        Situation("expiring_taken", lambda at: _dying(at.submit().lease().take_over()), time_passes=True),
        Situation("expiring_remote", lambda at: _dying(at.submit().lease().describe().take_over()), time_passes=True),
        Situation("expiring_flagged", lambda at: _dying(at.submit().lease().cancel()), time_passes=True),
        Situation("waited_expiring", lambda at: at.wait(), time_passes=True),
        Situation("falling_due", lambda at: at.submit(run_after=DELAY), time_passes=True),
    ]
    known += [
        Situation(f"old_{name}", plain[name], old=True)
        for name in ("fresh", "ready", "leased", "expired", "due", "failed", "withdrawn", "succeeded", "key_expired")
    ]
    return {situation.name: situation for situation in known}


def _dying(at: Setting) -> Setting:
    at.case.holder_dies = True
    return at


SITUATIONS = _situations()

IDS = 7  # one for the run, two for separate requests, and twice two for batches


def arrange(
    session: Session, situation: Situation, serial: str, claimers: tuple[str, str], month: str | None = None
) -> Case:
    """Create a run with its own task, queue and key, and bring it into the situation."""
    ids = new_ids(IDS) if month is None else ids_of_month(session, month)
    new = NewRun(
        id=ids[0],
        task=f"task {serial}",
        parameters='{"n": 1}',
        payload_hash=sha256(serial.encode()).hexdigest(),
        queue=f"queue {serial}",
        key=f"key {serial}",
    )
    case = Case(new, situation.name, tuple(ids[1:3]), (tuple(ids[3:5]), tuple(ids[5:7])), claimers, month=month)
    situation.arrange(Setting(session, case))
    return case


OLD_TABLES = ("runs", "attempts", "events", "logs", "steps")


def ids_of_month(session: Session, month: str) -> list[str]:
    """Create the partitions of a month (`YYYY_MM`), and return ids of that month."""
    low, high = session.execute(
        """
        select holdfast.id_floor(month)::text, holdfast.id_floor(month + interval '1 month')::text
        from (select to_date(%(month)s, 'YYYY_MM')::timestamp at time zone 'UTC' as month) as given
        """,
        {"month": month},
    )[0]
    for table in OLD_TABLES:
        session.execute(
            f"create table holdfast.{table}_{month} partition of holdfast.{table} "
            f"for values from ('{low}') to ('{high}')"
        )
    return [low[:13] + fresh[13:] for fresh in new_ids(IDS)]


def forget_months(session: Session, cases: Iterable[Case]) -> None:
    """Drop the remaining tables of old months, so that the months can be used again."""
    months = [case.month for case in cases if case.month is not None]
    for month in months:
        session.execute("drop table if exists " + ", ".join(f"holdfast.{table}_{month}" for table in OLD_TABLES))
    if months:
        session.execute(
            "truncate holdfast.pruned_ranges, " + ", ".join(f"holdfast.{table}_default" for table in OLD_TABLES)
        )
