"""What must hold at the end, according to the rows, the notes of the task bodies, and the responses that users got.

LOST        an acknowledged run or row does not exist
DOUBLED     a run that ended twice, two rows of one effect, one key with two runs, a success counted twice
STUCK       something has not ended although workers had enough time
MISJUDGED   a success recorded as a failure, or a failure although the body did not run
WRONG       any other inconsistency: outcomes, results, counters, invariants
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from holdfast import Client
from holdfast.client.verifying import verify
from tests.chaos.load import Ledger
from tests.explorer.history import History, counted, read
from tests.explorer.invariants import INVARIANTS, counters_are_exact
from tests.explorer.wire import Session
from tests.integration.jobs_support import disagreements

MEANT_TO_FAIL = ("chaos.doomed", "chaos.second_wind")
VERIFIED = 300
BATCH = 500

Violations = Iterator[str]


class Notes:
    """Which attempts' bodies began, and which were about to return."""

    def __init__(self, path: Path) -> None:
        self.began: dict[str, set[int]] = defaultdict(set)
        self.returned: dict[str, set[int]] = defaultdict(set)
        for line in path.read_text().splitlines() if path.exists() else []:
            what, run_id, attempt = line.split()
            (self.began if what == "began" else self.returned)[run_id].add(int(attempt))


class Judge:
    def __init__(self, connection: psycopg.Connection[Any], client: Client, ledger: Ledger, notes: Notes) -> None:
        self._connection = connection
        self._client = client
        self._ledger = ledger
        self._notes = notes
        self.endings: Counter[tuple[str, str]] = Counter()
        self.attempts: Counter[tuple[str, str]] = Counter()

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(query, values or None).fetchall()  # type: ignore[arg-type]

    def violations(self, url: str) -> list[str]:
        """All violations except `stuck`, which is checked while the workers are still running."""
        checks = (self.lost, self.doubled, self.effects, self.endings_as_meant, self.asked, self.kin)
        found = [one for check in checks for one in check()]
        found += [f"WRONG: {name}: {detail}" for name, *detail in disagreements(self._connection)]
        found += self.invariants(url)
        found += self.verified()
        found += self._ledger.complaints
        self._count()
        return found

    def lost(self) -> Violations:
        """Every acknowledged run and job exists; those that were rolled back do not."""
        runs = {run_id for (run_id,) in self.rows("select id::text from holdfast.runs")}
        jobs = {job_id for (job_id,) in self.rows("select id::text from holdfast.jobs")}
        for run_id in self._ledger.runs.keys() - runs:
            yield f"LOST: run {run_id} ({self._ledger.runs[run_id]}) was acknowledged and is not there"
        for job_id in self._ledger.jobs.keys() - jobs:
            yield f"LOST: job {job_id} was acknowledged and is not there"
        for run_id in self._ledger.rolled_back & runs:
            yield f"DOUBLED: run {run_id} is there although its transaction was rolled back"
        for (run_id,) in self.rows("select run_id::text from orders except select id::text from holdfast.runs"):
            yield f"LOST: the application's row of run {run_id} is there, the run is not"

    def stuck(self) -> Violations:
        for place in ("leases", "ready", "waiting"):
            for run_id, task in self.rows(
                f"select run_id::text, runs.task from holdfast.{place} join holdfast.runs on runs.id = run_id"
            ):
                yield f"STUCK: run {run_id} ({task}) is in {place}: {self._why(run_id)}"
        for job_id, name in self.rows("select id::text, name from holdfast.jobs where outcome is null"):
            yield f"STUCK: job {job_id} ({name}) has not ended"

    def _why(self, run_id: str) -> str:
        try:
            reasons = "; ".join(reason.detail for reason in self._client.why(run_id))
        except Exception as error:  # noqa: BLE001 - the other violations are still listed
            return f"why raised {type(error).__name__}: {error}"
        held = self.rows("select status, number, reason from holdfast.attempts where run_id = %s order by 2", run_id)
        return f"{reasons} (attempts {held})"

    def doubled(self) -> Violations:
        for run_id, endings in self.rows(
            "select run_id::text, count(*) from holdfast.attempts"
            " where outcome is not null and reopened_at is null group by 1 having count(*) > 1"
        ):
            yield f"DOUBLED: run {run_id} has {endings} endings in force"
        for run_id, successes in self.rows(
            "select run_id::text, count(*) from holdfast.attempts where status = 'SUCCEEDED'"
            " group by 1 having count(*) > 1"
        ):
            yield f"DOUBLED: run {run_id} succeeded {successes} times"

    def effects(self) -> Violations:
        """One row for each success, by the attempt that succeeded, and none for anything else."""
        for run_id, status, number, written in self.rows(
            """select runs.id::text, ended.status, ended.number, array(
                   select attempt from effects where effects.run_id = runs.id order by attempt)
               from holdfast.runs left join holdfast.attempts as ended
                    on ended.run_id = runs.id and ended.outcome is not null and ended.reopened_at is null
               where runs.task = 'chaos.effect'"""
        ):
            expected = [number] if status == "SUCCEEDED" else []
            if written != expected:
                kind = "DOUBLED" if len(written) > len(expected) else "LOST"
                yield f"{kind}: effects of run {run_id} ({status}, attempt {number}) are those of attempts {written}"

    def endings_as_meant(self) -> Violations:
        """Each run ended as its task, its dependencies and its users require."""
        excused = self._excused()
        for run_id, task, number, status, outcome, reason, error, result in self.rows(
            """select runs.id::text, task, number, attempts.status, outcome, reason, error, result
               from holdfast.runs join holdfast.attempts on attempts.run_id = runs.id
               where outcome is not null and reopened_at is null"""
        ):
            self.endings[task, outcome] += 1
            about = f"run {run_id} ({task}, attempt {number} {status}, {reason})"
            if outcome == "FAILED":
                yield from self._failed(about, run_id, task, number, error)
            elif outcome == "CANCELLED" and run_id not in excused:
                yield f"WRONG: {about} ended CANCELLED without a request"
            elif outcome == "SUCCEEDED":
                expected = self._ledger.results.get(run_id, result)
                if result != expected:
                    yield f"WRONG: {about} has the result {result}, not {expected}"
                if number not in self._notes.returned[run_id]:
                    yield f"WRONG: {about} ended SUCCEEDED, but that attempt's body never returned"

    def _failed(self, about: str, run_id: str, task: str, number: int, error: Any) -> Violations:
        said = f"{(error or {}).get('class')}: {(error or {}).get('message')}"[:160]
        if not self._notes.began[run_id]:
            yield f"MISJUDGED: {about} ended FAILED without having run: {said}"
        elif number in self._notes.returned[run_id]:
            yield f"MISJUDGED: {about} ended FAILED although its body returned: {said}"
        elif task not in MEANT_TO_FAIL:
            yield f"WRONG: {about} ended FAILED: {said}"
        elif run_id in self._ledger.reopened:
            yield f"WRONG: {about} was reopened and failed again: {said}"

    def _excused(self) -> set[str]:
        """Runs that may have been cancelled: by a user, with their job, or because of a dependency."""
        asked = set(self._ledger.cancel_asked)
        for run_id, job_id in self.rows("select id::text, job_id::text from holdfast.runs where job_id is not null"):
            if job_id in self._ledger.stop_asked:
                asked.add(run_id)
        unreachable = self.rows(
            "select run_id::text from holdfast.attempts where outcome = 'CANCELLED'"
            " and details ->> 'unreachable' is not null"
        )
        return asked | {run_id for (run_id,) in unreachable}

    def asked(self) -> Violations:
        """An acknowledged cancel ends CANCELLED, an acknowledged stop stops."""
        outcomes = dict(
            self.rows(
                "select run_id::text, outcome from holdfast.attempts where outcome is not null and reopened_at is null"
            )
        )
        for run_id in self._ledger.cancelled:
            if outcomes.get(run_id) != "CANCELLED":
                yield f"WRONG: the cancel of run {run_id} was acknowledged, and it ended {outcomes.get(run_id)}"
        for job_id, outcome in self.rows("select id::text, outcome from holdfast.jobs"):
            kind = self._ledger.jobs.get(job_id)
            if job_id in self._ledger.stopped and outcome != "CANCELLED":
                yield f"WRONG: the stop of job {job_id} was acknowledged, and it ended {outcome}"
            elif kind in ("map", "graph") and outcome not in ("SUCCEEDED", None):
                yield f"WRONG: job {job_id} ({kind}) ended {outcome}"

    def kin(self) -> Violations:
        """Parents have two children, however often they ran; a step has the result that the run returned."""
        for run_id, children in self.rows(
            """select runs.id::text, (select count(*) from holdfast.runs as child where child.parent_id = runs.id)
               from holdfast.runs join holdfast.attempts on run_id = runs.id and outcome = 'SUCCEEDED'
               where task = 'chaos.parent'"""
        ):
            if children != 2:
                yield f"{'LOST' if children < 2 else 'DOUBLED'}: run {run_id} has {children} children, not 2"
        for run_id, result, kept in self.rows(
            """select attempts.run_id::text, attempts.result, steps.result from holdfast.attempts
               join holdfast.runs on runs.id = attempts.run_id and task = 'chaos.stepped'
               left join holdfast.steps on steps.run_id = attempts.run_id
               where outcome = 'SUCCEEDED'"""
        ):
            if result != kept:
                yield f"DOUBLED: run {run_id} returned {result} for a step whose kept result is {kept}"

    def invariants(self, url: str) -> Violations:
        """The explorer's invariants for every run, and exact counters."""
        ids = [run_id for (run_id,) in self.rows("select id::text from holdfast.runs order by id")]
        tasks = dict(self.rows("select id::text, task from holdfast.runs"))
        by_task: dict[str, list[History]] = defaultdict(list)
        session = Session(url)
        try:
            for first in range(0, len(ids), BATCH):
                for run_id, history in read(session, ids[first : first + BATCH]).items():
                    by_task[tasks[run_id]].append(history)
                    if history.places:
                        continue  # it has not ended, and is reported as STUCK
                    for name, check in INVARIANTS.items():
                        for complaint in check(history):
                            yield f"WRONG: {name}: run {run_id} ({tasks[run_id]}): {complaint}"
            for task, amounts in counted(session, by_task).items():
                for complaint in counters_are_exact(by_task[task], amounts):
                    yield f"WRONG: counters of {task}: {complaint}"
        finally:
            session.close()

    def verified(self) -> Violations:
        """`holdfast runs verify` for the latest runs."""
        for (run_id,) in self.rows("select id::text from holdfast.runs order by id desc limit %s", VERIFIED):
            for check in verify(self._client, run_id):
                if not check.holds:
                    yield f"WRONG: verify {check.name}: run {run_id}: {check.detail}"

    def _count(self) -> None:
        query = (
            "select status, split_part(coalesce(reason, '-'), ':', 1), count(*) from holdfast.attempts group by 1, 2"
        )
        self.attempts.update({(status, reason): count for status, reason, count in self.rows(query)})
