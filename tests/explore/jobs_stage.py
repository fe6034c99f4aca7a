"""A stage for jobs: plays schedules like any other, and looks after each whether everything agrees with the rows."""

from __future__ import annotations

from functools import partial
from typing import Any

from holdfast.testing import clock
from holdfast.testing.explorer.actor import Actor
from holdfast.testing.explorer.drain import drain
from holdfast.testing.explorer.schedule import Meeting, Schedule
from holdfast.testing.explorer.search import Choose
from holdfast.testing.explorer.situations import LONG, register
from holdfast.testing.explorer.stage import Crashes, Played, Stage, Violation
from tests.explore.jobs_programs import PROGRAMS, SITUATIONS, Case, Setting
from tests.integration.jobs_support import CHECKS

# Only where transactions are short: a long one may have got its number before the child's, and end after it.
LATE_CHILDREN = {
    "a child that was added after its parent had ended": """
        select child.id::text, child.parent_id::text from holdfast.runs as child
        join holdfast.attempts on attempts.run_id = child.parent_id and attempts.outcome is not null
        where attempts.reopened_at is null and age(attempts.xmin) > age(child.xmin)""",
}


class JobStage(Stage):
    """Two actors on one job."""

    _cases: list[tuple[str, Case, list[Actor]]]

    def play(self, meeting: Meeting, crashes: Crashes, choose: Choose) -> Played:
        for session in (*self._sessions, self._scene, self._watch):
            session.prepare()
        if self._claimers is None:
            self._cases = []
            self._claimers = register(self._scene, LONG), register(self._scene, LONG)
        case = Case(f"{next(self._serials)}", self._claimers)
        SITUATIONS[meeting.situation](Setting(self._scene, case))
        parts = [PROGRAMS[meeting.first], PROGRAMS[meeting.second]]
        actors = [
            Actor(name, session, part.make(case, who), part.recover and partial(part.recover, case, who))  # type: ignore[arg-type]
            for who, (name, session, part) in enumerate(zip("ab", self._sessions, parts, strict=True))
        ]
        taken: list[str] = []
        waits = 0
        while options := self._options(actors, taken, crashes, time_to_pass=False):
            step = choose(options)
            taken.append(step)
            for actor in actors:
                actor.resting = actor.resting and actor.name == step[0]
            actors["ab".index(step[0])].step(step[1:] or None)
            waits += self._settle(actors)
        done = Played(Schedule(meeting, tuple(taken)), case, actors, waits)  # type: ignore[arg-type]
        self.played += 1
        self._cases.append((str(done.schedule), case, actors))
        self._look("after the last step", [self._cases[-1]])
        if len(self._cases) >= self.batch:
            self.judge()
        return done

    def judge(self) -> list[Violation]:
        """Let everything end, and check it."""
        if self._claimers is None:
            return []
        self._scene.prepare()
        drain(self._scene)
        before = len(self.violations)
        self._look("at the end", self._cases)
        for schedule, case, actors in self._cases:
            self._complain(schedule, "everything ends", self._unended(case))
            self._complain(schedule, "nothing starts after a stop", self._late(case))
            self._complain(schedule, "no actor is told nonsense", _nonsense(actors))
        clock.reset(self._scene)
        # The next batch is checked by itself.
        for table in ("dependencies", "maps", "jobs"):
            self._scene.execute(f"truncate holdfast.{table}")
        self._claimers = None
        return self.violations[before:]

    def _look(self, when: str, cases: list[tuple[str, Case, list[Actor]]]) -> None:
        for name, query in (CHECKS | LATE_CHILDREN).items():
            for row in self._scene.execute(query):
                blamed = next((s for s, case, _ in self._cases if _concerns(case, row)), cases[-1][0])
                self.violations.append(Violation(blamed, f"{name}, {when}", str(row)))

    def _complain(self, schedule: str, invariant: str, found: list[Any]) -> None:
        self.violations += [Violation(schedule, invariant, str(one)) for one in found]

    def _unended(self, case: Case) -> list[Any]:
        return list(
            self._scene.execute(
                """
                select child_key, id::text, status, reason from holdfast.run_status
                where job_id = %(job_id)s::uuid and status in ('PENDING', 'RUNNING')
                union all
                select 'the job', id::text, 'open', cancel_reason from holdfast.jobs
                where id = %(job_id)s::uuid and outcome is null and total > 0
                """,
                {"job_id": case.job_id},
            )
        )

    def _late(self, case: Case) -> list[Any]:
        """Attempts that began after the stop was acknowledged, in a job that was not reopened."""
        if case.stopped_at is None:
            return []
        return list(
            self._scene.execute(
                """
                select attempts.run_id::text, attempts.claimed_at, %(stopped_at)s::timestamptz
                from holdfast.attempts join holdfast.runs on runs.id = attempts.run_id
                where runs.job_id = %(job_id)s::uuid and attempts.claimed_at > %(stopped_at)s::timestamptz
                  and not exists (select from holdfast.attempts as past
                                  where past.run_id = runs.id and past.reopened_at is not null)
                """,
                {"job_id": case.job_id, "stopped_at": case.stopped_at},
            )
        )


def _concerns(case: Case, row: Any) -> bool:
    return bool({case.job_id, case.map_id, *case.ids.values()} & set(map(str, row)))


def _nonsense(actors: list[Actor]) -> list[str]:
    """Errors that are not ours: whatever an operation refuses, it refuses with a word of its own."""
    found = []
    for actor in actors:
        error = actor.answer.error
        if error is not None and not type(error).__module__.startswith("holdfast."):
            found.append(f"{actor.name}: {type(error).__name__}: {error}")
    return found
