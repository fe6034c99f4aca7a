"""What actors do: each operation as in production, and what its caller does without a response."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import Any

from holdfast import ops
from holdfast.domain.doorbell import Address
from holdfast.domain.execution import RemoteAttempt
from holdfast.domain.reasons import ReasonCode
from holdfast.domain.settling import Failed, HandedBack, NotBegun, Outcome, Succeeded, settle
from holdfast.domain.states import AttemptStatus
from holdfast.domain.values import Acknowledgement, AttemptRef, Claim, NewRun, Payload, Position, Settlement
from holdfast.sql import attempts, leases, logs, ready, remote_attempts, steps, waiting_workers, workers
from holdfast.sql.logs import LogLine
from holdfast.sql.statement import Op
from tests.explorer.actor import Do, Program

RETENTION = timedelta(days=2000)
WRITTEN = "written"  # the answer of a worker that found its unacknowledged outcome stored
POSTPONED = (timedelta(seconds=20), timedelta(seconds=40))
COPIED = 8  # how much of the log of a job was copied
ERROR = {"class": "Broken", "message": "it broke", "traceback": None}


@dataclass(slots=True)
class Case:
    """The subject of one schedule: a run, its holder, the other workers, and the ids of repeated requests."""

    new: NewRun
    situation: str
    others: tuple[str, ...]  # ids for requests that may create another run
    batches: tuple[tuple[str, ...], ...]  # ids for requests that create several runs
    claimers: tuple[str, str]
    waiters: tuple[str, ...] = ()  # workers that waited for a run when the actors started
    listener: int = 0  # the server process of the connection that receives their notifications
    holder: str = ""
    claimant: str = ""  # the worker that claimed the run, if its lease was taken over by the holder
    claim: Claim | None = None
    holder_dies: bool = False  # its lease has expired, or will in this schedule
    month: str | None = None  # of the partitions that hold the run, if they are old enough to be dropped
    lookers: set[int] = field(default_factory=set)  # actors that were given its attempt to look after
    begun: set[AttemptRef] = field(default_factory=set)  # claims that the holder received, in any actor

    @property
    def run_id(self) -> str:
        return self.new.id

    @property
    def ids(self) -> list[str]:
        """Every run that may be created in this schedule."""
        return [self.new.id, *self.others, *chain.from_iterable(self.batches)]

    @property
    def remote(self) -> RemoteAttempt:
        """The attempt as a worker saw it before its log was copied."""
        return RemoteAttempt(self.held().ref, f"job of {self.run_id}")

    @property
    def address(self) -> str:
        """A cluster of its own: what looks after it must not see the runs of other schedules."""
        return f"http://{self.run_id}"

    def held(self) -> Claim:
        if self.claim is None:
            raise RuntimeError(f"no worker holds the run in situation {self.situation}")
        return self.claim


Make = Callable[[Case, int], Program]


@dataclass(frozen=True, slots=True)
class Part:
    """A program by name. `recover` is what the caller does when it does not know whether `make` happened."""

    name: str
    make: Make
    recover: Make | None


def _lone(make_op: Callable[[Case, int], Op[Any]], *, begin: bool = False) -> Make:
    def program(case: Case, who: int) -> Program:
        return (yield Do(lambda: make_op(case, who), begin))

    return program


# Submitters. A request keeps its id when it is repeated; two requests that share a key or a payload do not share ids.


def _submit(case: Case, who: int) -> Op[Any]:
    return ops.submit(replace(case.new, key=None))


def _submit_first(case: Case, who: int, *, again: bool) -> Op[Any]:
    head = replace(case.new, key=None)
    return ops.submit_one(head, Payload(case.others[who], head.parameters, head.payload_hash), again=again)


def _submit_batch(case: Case, who: int, *, again: bool) -> Op[Any]:
    head = replace(case.new, key=None)
    batches = [[Payload(id_, head.parameters, head.payload_hash)] for id_ in case.batches[who]]
    return ops.submit_batches(head, batches, together=True, again=again)


def _submit_key(case: Case, who: int) -> Op[Any]:
    return ops.submit(replace(case.new, id=case.others[who]))


def _submit_other(case: Case, who: int) -> Op[Any]:
    return ops.submit(replace(case.new, id=case.others[who], parameters='{"n": 2}', payload_hash="02" * 32))


def _submit_dedupe(case: Case, who: int) -> Op[Any]:
    return ops.submit(replace(case.new, id=case.others[who], key=None, dedupe="active"))


# The same with a notification in the statement, which may hand the run to a waiting worker.


def _hand_over(case: Case, who: int) -> Op[Any]:
    return ops.submit(replace(case.new, key=None, ring=True))


def _hand_over_first(case: Case, who: int, *, again: bool) -> Op[Any]:
    head = replace(case.new, key=None)
    payload = Payload(case.others[who], head.parameters, head.payload_hash)
    return ops.submit_one(head, payload, ring=True, again=again)


def _hand_over_key(case: Case, who: int) -> Op[Any]:
    return ops.submit(replace(case.new, id=case.others[who], ring=True))


def _hand_over_dedupe(case: Case, who: int) -> Op[Any]:
    return ops.submit(replace(case.new, id=case.others[who], key=None, dedupe="active", ring=True))


# The waiting worker. In production two of its programs never run at the same time; here they may.


def _wait_again(case: Case, who: int) -> Op[Any]:
    address = Address("holdfast_explorer", case.listener)
    return iter(waiting_workers.wait(case.waiters[0], address, [case.new.queue], [case.new.task]))


def _adopt(case: Case, who: int) -> Op[Any]:
    return iter(waiting_workers.given(case.waiters[0]))


def _claim_and_leave(case: Case, who: int) -> Op[Any]:
    claims = yield from ops.claim(case.waiters[0], [Position(case.new.queue)], [case.new.task], 1)
    return (yield from waiting_workers.leave(case.waiters[0])), claims


def _after_leaving(case: Case, who: int) -> Program:
    yield from _release_unheard(case, case.waiters[0])
    return (yield Do(lambda: _claim_and_leave(case, who), begin=True))


def _drain_waiter(case: Case, who: int) -> Op[Any]:
    return iter(workers.drain(case.waiters[0]))


def _stop_waiter(case: Case, who: int) -> Op[Any]:
    return iter(workers.deregister(case.waiters[0], settled=True))


# Workers. Those that claim stay alive; the holder has the lease of the situation.


def _claim(case: Case, who: int) -> Op[Any]:
    return ops.claim(case.claimers[who], [Position(case.new.queue)], [case.new.task], 1)


def _claim_by_id(case: Case, who: int) -> Op[Any]:
    claimed = yield from ops.claim_by_id(case.claimers[who], case.run_id, [case.new.task], 0.5)
    return [claimed] if claimed else []


def _release_unheard(case: Case, worker: str, known: tuple[AttemptRef, ...] = ()) -> Program:
    """A worker without a response to its claim releases leases that it holds and has never started."""
    held: list[AttemptRef] = yield Do(lambda: iter(leases.held(worker)))
    unheard = [
        Settlement(ref, AttemptStatus.CANCELLED, None, excuse=True, reason="handed-back", begun=False)
        for ref in held
        if ref.run_id in case.ids and ref not in known and ref not in case.begun
    ]
    if unheard:
        yield Do(lambda: ops.finish(worker, unheard), begin=True)


def _after_claim(again: Make) -> Make:
    def program(case: Case, who: int) -> Program:
        yield from _release_unheard(case, case.claimers[who])
        return (yield from again(case, who))

    return program


def _renew(case: Case, who: int) -> Op[Any]:
    return ops.renew(case.holder)


def _finish(outcome: Outcome) -> Callable[[Case, int], Op[list[Acknowledgement]]]:
    def op(case: Case, who: int) -> Op[list[Acknowledgement]]:
        return ops.finish(case.holder, [settle(case.held(), _signed(outcome, who), 0.5)])

    return op


def _signed(outcome: Outcome, who: int) -> Outcome:
    """Give each actor a distinct result."""
    return Succeeded(result=f'"by {who}"') if isinstance(outcome, Succeeded) else outcome


def _turn(case: Case, who: int) -> Op[Any]:
    """A busy worker ends one run and claims the next in one transaction: here the same run, whose process crashed."""
    acks = yield from _finish(Failed(ERROR, reason="crash"))(case, who)
    yield from ops.promote(1000)
    claims = yield from ops.claim(case.holder, [Position(case.new.queue)], [case.new.task], 1)
    return acks, claims


def _turning(case: Case, who: int) -> Program:
    acks, claims = yield Do(lambda: _turn(case, who), begin=True)
    case.begun.update(claim.ref for claim in claims)
    return acks, claims


def _after_finish(again: Make) -> Make:
    """A worker without a response to a finish checks whether it was stored, and repeats it only if not."""

    def program(case: Case, who: int) -> Program:
        ref = case.held().ref
        written: set[AttemptRef] = yield Do(lambda: iter(attempts.ended_by(case.holder, [ref])))
        yield from _release_unheard(case, case.holder, (ref,))
        if ref in written:
            return WRITTEN
        return (yield from again(case, who))

    return program


def _take_over(case: Case, who: int) -> Op[Any]:
    """The process that the claiming worker submitted starts, now or late."""
    return ops.take_over(case.claimers[who], case.held().ref, case.claimant or case.holder)


def _step(case: Case, who: int) -> Op[Any]:
    """A step is stored once; a repeated request finds it."""
    return iter(steps.record(case.holder, case.held().ref, f"step of {who}", f'"by {who}"'))


def _log(case: Case, who: int) -> Op[Any]:
    return iter(logs.add(case.holder, [LogLine(case.held().ref, "INFO", f"line of {who}", 0.0)]))


# Workers that look after attempts which another process executes. They do not hold the leases.


def _look_after(case: Case, who: int) -> Program:
    found: list[RemoteAttempt] = yield Do(lambda: iter(remote_attempts.look_after(case.address, 5.0, 10)), begin=True)
    case.lookers.update({who} if found else ())
    return found


def _note_late(case: Case, who: int) -> Op[Any]:
    """A worker notes what it saw when it looked, which may be long ago."""
    line, details = ("info", f"copied by {who}"), {f"noted_by_{who}": True}
    return iter(remote_attempts.note(case.remote, COPIED, [line], details))


def _over(case: Case, who: int) -> Op[Any]:
    return iter(remote_attempts.over([case.held().ref]))


# People and upkeep.


def _cancel(case: Case, who: int) -> Op[Any]:
    return ops.cancel(case.run_id, f"requested by {who}")


def _postpone(case: Case, who: int) -> Op[Any]:
    return ops.postpone(case.run_id, POSTPONED[who], f"person {who}")


def _retry(case: Case, who: int) -> Op[Any]:
    return ops.retry(case.run_id, f"person {who}")


def _rescue(case: Case, who: int) -> Program:
    found = yield Do(lambda: ops.find_orphans(500))
    acks: list[Acknowledgement] = []
    for orphan in found:
        if orphan.run_id in case.ids:
            acks += yield Do(lambda orphan=orphan: ops.rescue([orphan], 0.5))  # type: ignore[misc]
    return acks


def _promote(case: Case, who: int) -> Op[Any]:
    return ops.promote(1000)


def _name_tasks(case: Case, who: int) -> Op[Any]:
    return iter(ready.name_tasks(1000))


def _prune(case: Case, who: int) -> Op[Any]:
    return ops.prune(RETENTION)


def _part(name: str, make: Make, recover: Make | None) -> tuple[str, Part]:
    return name, Part(name, make, recover)


def _repeated(name: str, make_op: Callable[[Case, int], Op[Any]], *, begin: bool = False) -> tuple[str, Part]:
    make = _lone(make_op, begin=begin)
    return _part(name, make, make)


def _first(name: str, make_op: Callable[..., Op[Any]]) -> tuple[str, Part]:
    """A request that says whether it is sent for the first time."""
    return _part(name, _lone(partial(make_op, again=False)), _lone(partial(make_op, again=True)))


def _finishing(name: str, outcome: Outcome) -> tuple[str, Part]:
    make = _lone(_finish(outcome), begin=True)
    return _part(name, make, _after_finish(make))


_claiming, _claiming_by_id = _lone(_claim, begin=True), _lone(_claim_by_id)
# A release without a response is repeated: once it is stored, the lease that it names is gone.
_releasing = _lone(_finish(NotBegun()), begin=True)

PROGRAMS: dict[str, Part] = dict(
    [
        _repeated("submit", _submit),
        _first("submit_first", _submit_first),
        _first("submit_batch", _submit_batch),
        _repeated("submit_key", _submit_key),
        _repeated("submit_other", _submit_other),
        _repeated("submit_in", _submit_key, begin=True),  # in the caller's transaction
        _repeated("submit_dedupe", _submit_dedupe),
        _repeated("hand_over", _hand_over),
        _first("hand_over_first", _hand_over_first),
        _repeated("hand_over_key", _hand_over_key),
        _repeated("hand_over_dedupe", _hand_over_dedupe),
        _repeated("wait_again", _wait_again),
        _repeated("adopt", _adopt),
        _part("claim_and_leave", _lone(_claim_and_leave, begin=True), _after_leaving),
        _repeated("drain_waiter", _drain_waiter),
        _repeated("stop_waiter", _stop_waiter),
        _part("claim", _claiming, _after_claim(_claiming)),
        _part("claim_by_id", _claiming_by_id, _after_claim(_claiming_by_id)),
        _repeated("renew", _renew),
        _finishing("succeed", Succeeded(result="1")),
        _finishing("fail", Failed(ERROR)),
        _finishing("fail_for_good", Failed(ERROR, retryable=False)),
        _finishing("hand_back", HandedBack()),
        _finishing("postpone_itself", HandedBack(reason=ReasonCode.POSTPONED, delay=30.0)),
        _part("release", _releasing, _releasing),
        _part("turn", _turning, _after_finish(_turning)),
        _repeated("take_over", _take_over, begin=True),
        _repeated("step", _step),
        _part("log", _lone(_log), None),
        _part("look_after", _look_after, _look_after),
        _repeated("note_late", _note_late, begin=True),
        _repeated("over", _over),
        _repeated("cancel", _cancel),
        _repeated("postpone", _postpone),
        _part("retry", _lone(_retry), None),
        _part("rescue", _rescue, _rescue),
        _repeated("promote", _promote, begin=True),
        _repeated("name_tasks", _name_tasks),
        _repeated("prune", _prune),
    ]
)
