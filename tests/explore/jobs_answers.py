"""The responses that callers of job operations received, compared with what was stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from psycopg.errors import ForeignKeyViolation

from holdfast.domain.errors import (
    ChildDiffers,
    JobEnded,
    JobNotFound,
    KeyReused,
    LeaseLost,
    RunCancelled,
    RunEnded,
    SubscriptionNotFound,
)
from holdfast.domain.jobs import JobRecord, Mapped
from holdfast.domain.values import Acknowledgement, Claim, Submitted
from tests.explore.jobs_cases import HEALED, Case
from tests.explore.jobs_keys import BEFORE, GONE
from tests.explore.jobs_programs import Part
from tests.explorer.actor import Answer
from tests.explorer.history import History

Complaints = Iterator[str]

ENDING = {"finish", "add_with_success", "cancel", "rescue", "stop", "several"}


@dataclass(frozen=True, slots=True)
class Given:
    """One caller's response, the other programs, and how the runs of the case and their job ended."""

    case: Case
    situation: str
    who: int
    part: Part
    others: tuple[Part, ...]
    answer: Answer
    runs: dict[str, History]
    job: JobRecord | None
    maps: int

    def run(self, name: str) -> History:
        return self.runs[self.case.ids[name]]

    def others_do(self, *does: str) -> bool:
        return any(other.does in does for other in self.others)

    @property
    def own_name(self) -> str:
        """The run that this caller requested, by its own name or by one that others may use too."""
        name = self.part.names[0]
        return name if name in self.case.ids else f"{name}{self.who}"


def check(given: Given) -> Complaints:
    """Everything wrong with one caller's answer."""
    answer = given.answer
    if not answer.received:
        return
    if answer.error is None:
        yield from _CHECKS[given.part.does](given, answer.value)
    elif not _expected(given, answer.error):
        yield f"it was refused with {type(answer.error).__name__}: {str(answer.error).partition(chr(10))[0]}"
    else:
        yield from _refused(given)


def _expected(given: Given, error: Exception) -> bool:
    closed = given.others_do(*ENDING) or given.situation in ("stopping", "over", "ended", "loose")
    match given.part.does:
        case "name" | "name_map" if isinstance(error, ChildDiffers):
            rivals = {other.names[0] for other in given.others if other.does == given.part.does}
            return bool(rivals - {given.part.names[0]})
        case "name" if isinstance(error, LeaseLost | RunCancelled):
            return "old" in given.part.names or closed
        case "add" | "map" | "name" | "name_map" | "several" | "add_resource":
            stopped = isinstance(error, LeaseLost | RunCancelled) and "held" in given.part.names
            ended = isinstance(error, RunEnded) and given.part.does == "several"
            return closed and (isinstance(error, JobEnded) or stopped or ended)
        case "stop":
            return isinstance(error, JobEnded) and closed
        case "cancel":
            return isinstance(error, RunEnded)
        case "retry":
            return isinstance(error, RunEnded | JobEnded)
        case "retry_job":
            return isinstance(error, JobEnded) and closed
        case "key_job" | "key_run":
            gone = given.situation in GONE
            before = {("one",)} if given.case.keyed.get(BEFORE) else set()
            rivals = {other.names for other in given.others if other.does in ("key_job", "key_run")} | before
            if isinstance(error, KeyReused):
                return bool(rivals - {given.part.names}) and (error.job_id or error.run_id) in _known(given.case)
            return isinstance(error, JobNotFound) and gone and given.situation != "keyed_gone"
        case "stop_keyed":
            return isinstance(error, JobEnded)
        case "unsubscribe" | "pause":
            gone = given.answer.doubted or given.others_do("unsubscribe")
            return isinstance(error, SubscriptionNotFound) and gone
        case "fan_out" | "publish":
            # The subscription was removed in the meantime; the publisher retries in its next round.
            return isinstance(error, ForeignKeyViolation) and given.others_do("unsubscribe")
        case _:
            return False


def _known(case: Case) -> set[str]:
    """Everything that the key of a case can refer to."""
    return {*case.keyed.values(), *case.ids.values()}


def _refused(given: Given) -> Complaints:
    """A rejected request had no effect."""
    if given.answer.doubted:
        return
    who = f"person {given.who}"
    match given.part.does:
        case "add" | "several":
            shared = any(given.part.names == other.names for other in given.others)
            for name in given.part.names:
                run = given.runs.get(given.case.ids.get(f"{name}{given.who}", ""))
                if run is not None and run.exists and not shared:
                    yield f"it was refused, but its run {name} is there"
        case "map":
            if given.maps and not given.others_do("map"):
                yield "it was refused, but its map is there"
        case "retry" | "retry_job":
            if any(attempt.reopened_by == who for run in given.runs.values() for attempt in run.attempts):
                yield "it was refused, but it reopened runs"
        case "cancel":
            run = given.run(given.part.names[0])
            if not {"SUCCEEDED", "FAILED"} & {attempt.outcome for attempt in run.attempts}:
                yield "it was refused because the run had ended, and the run only was cancelled"


# One for each kind of operation.


def _finished(given: Given, acks: list[Acknowledgement]) -> Complaints:
    case = given.case
    for ack in acks:
        run = given.runs[ack.ref.run_id]
        attempt = run.attempt(ack.ref.number)
        mine = attempt is not None and attempt.worker_id == case.holder and attempt.status != "LOST"
        rivals = [
            name for other in given.others if other.does in ("finish", "add_with_success") for name in other.names
        ]
        if ack.accepted and not (mine and attempt and (attempt.status, attempt.outcome) == (ack.status, ack.outcome)):
            yield f"it received {ack}, recorded is {attempt}"
        rivalled = run.run_id in {case.ids[name] for name in rivals}
        if not ack.accepted and mine and not given.answer.doubted and not rivalled:
            yield f"its ending was refused, recorded is {attempt}"
        if not ack.accepted and not any(event.type == "FENCED" for event in run.events):
            yield "its ending was refused without a FENCED event"
    if not given.answer.doubted and len(acks) != len(given.part.names):
        yield f"it settled {given.part.names} and received {len(acks)} acks"


def _added_with_success(given: Given, acks: list[Acknowledgement]) -> Complaints:
    yield from _finished(given, acks)
    for ack in acks:
        made = given.run("child").exists
        if ack.accepted and (ack.outcome == "SUCCEEDED") is not made and not given.others_do(given.part.does):
            yield f"its run ended {ack.outcome}, its child is {'there' if made else 'not there'}"


def _added(given: Given, answer: Any) -> Complaints:
    for made in answer if isinstance(answer, list) else [answer]:
        submitted: Submitted = made
        run_id = given.case.ids[given.own_name]
        shared = any(given.part.names == other.names for other in given.others)
        if submitted.run.id != run_id:
            yield f"it requested {run_id} and received {submitted.run.id}"
        if not given.runs[run_id].exists:
            yield f"it received run {run_id}, which is not there"
        if not submitted.created and not given.answer.doubted and not shared:
            yield f"it made {run_id}, and was answered that it was there before"


def _did_several(given: Given, answer: Any) -> Complaints:
    for name in given.part.names:
        if not given.run(f"{name}{given.who}").exists:
            yield f"its transaction was committed, and its run {name} is not there"


def _mapped(given: Given, mapped: Mapped) -> Complaints:
    if not given.maps:
        yield "it was answered that there is a map, and there is none"
    if not mapped.created and not given.answer.doubted and not given.others_do("map"):
        yield "it made the map, and was answered that it was there before"


def _named(given: Given, made: Submitted) -> Complaints:
    """The requested child exists under the name, and nothing else."""
    if "old" in given.part.names:
        yield f"its attempt has lost its run, and it received {made.run.id}"
    if made.run.parameters != {"name": f"named {given.part.names[0]}"}:
        yield f"it requested {given.part.names[0]} and received {made.run.parameters}"
    if not given.run("named").exists:
        yield f"it received run {made.run.id}, which is not there"
    if not made.created and not given.answer.doubted and not given.others_do("name"):
        yield f"it made {made.run.id}, and was answered that it was there before"


def _named_map(given: Given, mapped: Mapped) -> Complaints:
    if str(mapped.map.total) != given.part.names[0]:
        yield f"it requested a map of {given.part.names[0]} runs and received one of {mapped.map.total}"
    if not mapped.created and not given.answer.doubted and not given.others_do("name_map"):
        yield "it made the map, and was answered that it was there before"


def _keyed(given: Given, job: JobRecord) -> Complaints:
    """The job that it received was created by this request or by an equal one."""
    case, own = given.case, given.case.keyed[given.who]
    if job.id not in case.keyed.values():
        yield f"it received the job {job.id}, which the key cannot have made"
    if job.name != given.part.names[0]:
        yield f"it requested {given.part.names[0]} and received {job.name}"
    if given.situation in ("keyed", "keyed_late") and job.id != case.keyed[BEFORE]:
        yield f"the key stands for {case.keyed[BEFORE]}, it received {job.id}"
    if given.situation == "keyed_gone_early":
        yield f"the key is not free before its time, and it received {job.id}"
    shared = any(other.does in ("key_job", "prune") for other in given.others)
    if BEFORE not in case.keyed and job.id != own and not shared:
        yield f"it made {own}, and received {job.id}"


def _keyed_run(given: Given, made: Submitted) -> Complaints:
    if made.run.id != given.case.ids[f"run of {given.who}"]:
        yield f"it received the run {made.run.id}, which it did not ask for"


def _stopped(given: Given, job: JobRecord) -> Complaints:
    """The first stop decides how the job ends, and each caller gets its reason."""
    outcome, reason = given.part.names
    ended = given.others_do(*ENDING - {"stop"}) or given.situation in ("over", "stopped")
    reopened = ended and given.others_do("retry", "retry_job")
    if job.cancel_requested_at is None:
        if job.status != outcome:
            yield f"it stopped a job that is {job.status} and was never stopped"
    elif given.job is not None and not reopened:
        if job.reason != given.job.reason:
            yield f"it received the reason {job.reason!r}, recorded is {given.job.reason!r}"
        elif job.reason == reason and given.job.status != outcome:
            yield f"it stopped the job as {outcome}, recorded is {given.job.status}"


def _claimed(given: Given, claims: list[Claim]) -> Complaints:
    for claim in claims:
        attempt = given.runs[claim.run_id].attempt(claim.number)
        if attempt is None or attempt.worker_id != given.case.claimers[given.who % 2]:
            yield f"it received attempt {claim.number}, which is recorded as {attempt}"


def _cancelled(given: Given, record: Any) -> Complaints:
    run = given.run(given.part.names[0])
    if "CANCELLED" not in {attempt.outcome for attempt in run.attempts}:
        yield f"it was answered {record.status}, and the run ended {run.status}"


def _retried(given: Given, record: Any) -> Complaints:
    if not any(attempt.reopened_by == f"person {given.who}" for attempt in given.run("a").attempts):
        yield "it was answered that the run is reopened, but no ending is"


def _retried_job(given: Given, amount: int) -> Complaints:
    who = f"person {given.who}"
    reopened = sum(attempt.reopened_by == who for run in given.runs.values() for attempt in run.attempts)
    if amount and not given.others_do("stop") and given.job is not None and given.job.cancel_requested_at is not None:
        yield "it was answered that runs are reopened, but their job is still being stopped"
    if reopened != amount:
        yield f"it was answered that {amount} runs are reopened, {reopened} are"


def _healed(given: Given, answer: tuple[int, str | None]) -> Complaints:
    if answer[0] and given.situation not in HEALED:
        yield f"it found {answer[0]} wrong counts where none was"


def _rescued(given: Given, acks: list[Acknowledgement]) -> Complaints:
    for ack in acks:
        attempt = given.runs[ack.ref.run_id].attempt(ack.ref.number)
        if attempt is None or attempt.status != "LOST":
            yield f"it received {ack}, recorded is {attempt}"


def _anything(given: Given, answer: Any) -> Complaints:
    yield from ()


_CHECKS: dict[str, Callable[[Given, Any], Complaints]] = {
    "finish": _finished,
    "add_with_success": _added_with_success,
    "add": _added,
    "several": _did_several,
    "map": _mapped,
    "name": _named,
    "name_map": _named_map,
    "key_job": _keyed,
    "key_run": _keyed_run,
    "stop": _stopped,
    "claim": _claimed,
    "cancel": _cancelled,
    "retry": _retried,
    "retry_job": _retried_job,
    "heal": _healed,
    "rescue": _rescued,
    **dict.fromkeys(
        [
            "go_on",
            "start_late",
            "subscribe",
            "unsubscribe",
            "pause",
            "fan_out",
            "publish",
            "add_resource",
            "remove",
            "stop_keyed",
            "prune",
        ],
        _anything,
    ),
}
