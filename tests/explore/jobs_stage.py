"""A stage for jobs: plays schedules like any other, and checks after each that all rows are consistent."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from holdfast import ops
from holdfast.domain.ids import new_id
from holdfast.domain.jobs import JobRecord
from holdfast.ops import outbox
from holdfast.sql import jobs
from holdfast.sql.deliveries import Try
from holdfast.sql.statement import plain_array
from holdfast.testing import clock
from tests.explore.jobs_answers import Given, check
from tests.explore.jobs_cases import HEALED, SITUATIONS, Case, Setting
from tests.explore.jobs_keys import KEY_SITUATIONS, complaints
from tests.explore.jobs_meetings import PROGRAMS
from tests.explore.jobs_programs import Part
from tests.explorer import history, invariants
from tests.explorer.actor import Actor
from tests.explorer.drain import drain
from tests.explorer.history import History
from tests.explorer.schedule import ACTORS, IMPATIENT, Meeting, Schedule
from tests.explorer.search import Choose
from tests.explorer.situations import LONG, PAST_IT, register
from tests.explorer.stage import BATCH, Crashes, Played, Stage, Violation
from tests.explorer.wire import Rewrite, unchanged
from tests.integration.jobs_support import CHECKS

# Only for short transactions: a long one may get its number before the child's transaction and end after it.
LATE_CHILDREN = {
    "a child that was added after its parent had ended": """
        select child.id::text, child.parent_id::text from holdfast.runs as child
        join holdfast.attempts on attempts.run_id = child.parent_id and attempts.outcome is not null
        where attempts.reopened_at is null and age(attempts.xmin) > age(child.xmin)""",
}
MORE_CHECKS = {
    "critical runs of a job": """
        select jobs.id::text, jobs.broken, reported.broken from holdfast.jobs cross join lateral (
            select count(*) from holdfast.runs join holdfast.attempts on attempts.run_id = runs.id
            where runs.job_id = jobs.id and attempts.outcome <> 'SUCCEEDED' and attempts.reopened_at is null
              and attempts.details ->> 'unreachable' is null
              and coalesce((runs.policy ->> 'critical')::boolean, true)) as reported (broken)
        where jobs.broken <> reported.broken""",
    "a run that was stopped with its job, which is not": """
        select attempts.run_id::text, jobs.id::text from holdfast.attempts
        join holdfast.runs on runs.id = attempts.run_id join holdfast.jobs on jobs.id = runs.job_id
        where attempts.details ->> 'stopped' is not null and attempts.reopened_at is null
          and jobs.cancel_requested_at is null""",
    "a name that stands for two runs": """
        select job_id::text, child_key, count(*) from holdfast.runs where child_key is not null
        group by job_id, parent_id, child_key having count(*) > 1""",
    # The programs that map under a name all use the same one; the map without a name has the id of its case.
    "a name that stands for two maps": """
        select job_id::text, count(*) from holdfast.maps where id <> all(%(unnamed)s::uuid[])
        group by job_id having count(*) > 1""",
    "a name that stands for nothing": """
        select steps.run_id::text, steps.name, steps.result::text from holdfast.steps
        where starts_with(steps.name, 'holdfast:')
          and not exists (select from holdfast.runs where runs.id = (steps.result ->> 'run')::uuid)
          and not exists (select from holdfast.maps where maps.id = (steps.result ->> 'map')::uuid)""",
    "a resource that was noted after its job had ended": """
        select resources.job_id::text, resources.created_at, jobs.finished_at
        from holdfast.resources join holdfast.jobs on jobs.id = resources.job_id
        where resources.created_at > jobs.finished_at""",
}

# After upkeep has run.
STARTED = {
    "a job that has not started although a run of it has": """
        select jobs.id::text, attempts.run_id::text, attempts.number from holdfast.jobs
        join holdfast.runs on runs.job_id = jobs.id
        join holdfast.attempts on attempts.run_id = runs.id and attempts.number >= 1
        where jobs.started_at is null""",
    "a note of a late start that was left": "select job_id::text from holdfast.late_starts",
}

BATCH_TABLES = (
    "late_starts",
    "dependencies",
    "maps",
    "jobs",
    "steps",
    "resources",
    "outbox",
    "idempotency_keys",
    "pruned_ranges",
    "subscriptions",
)


class JobStage(Stage):
    """Two or three actors on one job."""

    def __init__(self, url: str, rewrite: Rewrite = unchanged, batch: int = BATCH) -> None:
        super().__init__(url, rewrite, batch, actors=len(ACTORS))
        self._cases: list[tuple[Schedule, Case, list[Actor]]] = []

    def play(self, meeting: Meeting, crashes: Crashes, choose: Choose) -> Played:
        for session in (*self._sessions, self._scene, self._watch):
            session.prepare()
        if self._claimers is None:
            self._cases = []
            self._claimers = register(self._scene, LONG), register(self._scene, LONG)
        case = Case(f"{next(self._serials)}", self._claimers)
        (SITUATIONS | KEY_SITUATIONS)[meeting.situation](Setting(self._scene, case))
        actors = []
        for who, (name, part) in enumerate(zip(meeting.programs, _parts(meeting), strict=True)):
            recover = part.recover and partial(part.recover, case, who)
            actors.append(self._actor(name, who, part.make(case, who), recover))
        taken, waits = self._act(actors, crashes, choose, time_passes=False)
        done = Played(Schedule(meeting, tuple(taken)), case, actors, waits)  # type: ignore[arg-type]
        self.played += 1
        self._cases.append((done.schedule, case, actors))
        if meeting.situation in HEALED and not _has_healed(meeting, actors):
            self._scene.run(ops.heal_dependencies())
        self._look("after the last step")
        if case.subscribed or case.open_then is not None:
            self._publish(str(done.schedule), case, meeting)
        if len(self._cases) >= self.batch:
            self.judge()
        return done

    def judge(self) -> list[Violation]:
        """Let everything end, and check it."""
        if self._claimers is None:
            return []
        self._scene.prepare()
        before = len(self.violations)
        drain(self._scene)
        self._remove_resources()
        self._look("at the end", STARTED)
        runs = history.read(self._scene, [id_ for _, case, _ in self._cases for id_ in case.ids.values()])
        counted = history.counted(self._scene, [case.task for _, case, _ in self._cases])
        for schedule, case, actors in self._cases:
            mine = {id_: runs[id_] for id_ in case.ids.values()}
            self._complain(schedule, "everything ends", self._unended(case))
            self._complain(schedule, "nothing starts after a stop", self._late(case))
            self._complain(schedule, "no program complains", case.complaints)
            self._complain(schedule, "one key, one job", complaints(self._scene, case))
            self._complain_of_runs(schedule, mine)
            reported = invariants.counters_are_exact(list(mine.values()), counted[case.task])
            self._complain(schedule, "counters_are_exact", list(reported))
            self._complain_of_answers(schedule, case, actors, mine)
        clock.reset(self._scene)
        # The next batch is checked separately. Truncating the table would make every statement be planned again.
        for table in BATCH_TABLES:
            self._scene.execute(f"delete from holdfast.{table}")
        self._claimers = None
        return self.violations[before:]

    def _look(self, when: str, more: Mapping[str, str] = MappingProxyType({})) -> None:
        schedule = self._cases[-1][0]
        checks = CHECKS | MORE_CHECKS | more
        if not any(name.startswith("user") for name in schedule.meeting.programs):
            checks |= LATE_CHILDREN
        known = {"unnamed": plain_array([case.map_id for _, case, _ in self._cases])}
        for name, query in checks.items():
            for row in self._scene.execute(query, known):
                blamed = next((s for s, case, _ in self._cases if _concerns(case, row)), schedule)
                self.violations.append(Violation(str(blamed), f"{name}, {when}", str(row)))

    def _complain(self, schedule: object, invariant: str, found: list[Any]) -> None:
        self.violations += [Violation(str(schedule), invariant, str(one)) for one in found]

    def _complain_of_runs(self, schedule: Schedule, runs: dict[str, History]) -> None:
        for run in runs.values():
            if run.exists:
                for name, invariant in invariants.INVARIANTS.items():
                    self._complain(schedule, name, list(invariant(run)))

    def _complain_of_answers(
        self, schedule: Schedule, case: Case, actors: list[Actor], runs: dict[str, History]
    ) -> None:
        job: JobRecord | None = self._scene.run(iter(jobs.read(case.job_id)))
        ((maps,),) = self._scene.execute(
            "select count(*) from holdfast.maps where id = %(id)s::uuid", {"id": case.map_id}
        )
        parts = _parts(schedule.meeting)
        for who, actor in enumerate(actors):
            others = tuple(part for other, part in enumerate(parts) if other != who)
            given = Given(case, schedule.meeting.situation, who, parts[who], others, actor.answer, runs, job, maps)
            self._complain(schedule, f"the answer of {actor.name}", list(check(given)))

    def _unended(self, case: Case) -> list[Any]:
        return list(
            self._scene.execute(
                """
                select child_key, id::text, status, reason from holdfast.run_status
                where job_id = %(job_id)s::uuid and status in ('PENDING', 'RUNNING')
                union all
                select 'the job', id::text, 'open', cancel_reason from holdfast.jobs
                where id = %(job_id)s::uuid and outcome is null and total > 0
                union all
                select 'a resource', name, 'there', error from holdfast.resources where job_id = %(job_id)s::uuid
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

    # Resources and subscriptions.

    def _remove_resources(self) -> None:
        while due := self._scene.run(ops.resources_to_remove()):
            for resource in due:
                self._scene.run(ops.resource_removed(resource))

    def _publish(self, schedule: str, case: Case, meeting: Meeting) -> None:
        """Deliver everything, and check that each end was delivered once to its subscription."""
        while self._scene.run(outbox.fan_out()):
            pass
        made = self._scene.execute(
            """
            select deliveries.run_id::text from holdfast.deliveries
            join holdfast.subscriptions on subscriptions.id = deliveries.subscription_id
            where subscriptions.name = %(name)s order by deliveries.id
            """,
            {"name": case.subscription},
        )
        ended = self._scene.execute(
            "select run_id::text from holdfast.attempts where outcome is not null and run_id = any(%(ids)s::uuid[])",
            {"ids": plain_array(case.ids.values())},
        )
        there = self._scene.execute(
            "select paused_at is not null from holdfast.subscriptions where name = %(name)s",
            {"name": case.subscription},
        )
        delivered, endings = [row[0] for row in made], {row[0] for row in ended}
        if there:
            wanted = endings if case.open_then is None else endings & case.open_then
            self._complain(schedule, "every ending is delivered", sorted(wanted - set(delivered)))
            self._complain(schedule, "what ended before is not delivered", sorted(case.ended_then & set(delivered)))
            self._complain(schedule, "only endings are delivered", sorted(set(delivered) - endings))
        clock.move(self._scene, PAST_IT)
        holder = new_id()
        while found := self._scene.run(outbox.hold(holder, 60.0, 10)):
            held, due = found
            self._scene.run(outbox.delivered(holder, [one.id for one in due], Try(), keep=True, hold_seconds=60.0))
            self._scene.run(outbox.release(holder, held.id))
        left = self._scene.execute("select id, run_id::text from holdfast.deliveries where status = 'PENDING'")
        if there and not there[0][0]:
            self._complain(schedule, "what is due is delivered", list(left))
        self._scene.execute("delete from holdfast.subscriptions")


def _parts(meeting: Meeting) -> list[Part]:
    return [PROGRAMS[name.removesuffix(IMPATIENT)] for name in meeting.programs]


def _has_healed(meeting: Meeting, actors: list[Actor]) -> bool:
    """Whether an actor has corrected the wrong count, or should have."""
    healers = [actor for actor, part in zip(actors, _parts(meeting), strict=True) if part.does == "heal"]
    return any(actor.answer.received and actor.answer.error is None for actor in healers)


def _concerns(case: Case, row: Any) -> bool:
    return bool({case.job_id, case.map_id, *case.ids.values()} & set(map(str, row)))
