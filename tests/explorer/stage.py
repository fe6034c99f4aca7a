"""The stage: plays schedules, and periodically lets everything end and checks the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import count

import psycopg

from holdfast.sql.statement import plain_array
from holdfast.testing import clock
from tests.explorer import answers, history, invariants
from tests.explorer.actor import DIES, DROPPED, UNANSWERED, Actor, Program
from tests.explorer.drain import drain
from tests.explorer.programs import PROGRAMS, Case
from tests.explorer.schedule import ACTORS, IMPATIENT, TIME_PASSES, Meeting, Schedule
from tests.explorer.search import Choose
from tests.explorer.situations import LONG, PAST_IT, SITUATIONS, arrange, forget_months, register
from tests.explorer.wire import Rewrite, Session, unchanged

BATCH = 40
SOON = 0.002


@dataclass(slots=True)
class Played:
    """One schedule that was played."""

    schedule: Schedule
    case: Case
    actors: list[Actor]
    waits: int

    @property
    def steps(self) -> tuple[int, ...]:
        """How many steps each actor took, and time, if it passed."""
        return *(actor.steps for actor in self.actors), *[1] * (TIME_PASSES in self.schedule.steps)


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that a schedule violated."""

    schedule: str
    invariant: str
    complaint: str

    def __str__(self) -> str:
        return f"{self.schedule}  {self.invariant}: {self.complaint}"


class Crashes(Enum):
    """Which schedules have a crash: none, or one at every point, after which the actors continue one after the other
    (brief) or in all interleavings."""

    NONE = "none"
    BRIEF = "brief"
    ALL = "all"


class Stage:
    """Connections to a separate database: for each actor, for setup and cleanup, and for monitoring."""

    def __init__(self, url: str, rewrite: Rewrite = unchanged, batch: int = BATCH, actors: int = 2) -> None:
        self.batch = batch
        self.played = 0
        self.violations: list[Violation] = []
        self._sessions = [Session(url, rewrite) for _ in range(actors)]
        self._scene = Session(url)
        self._watch = Session(url)
        self._pending: list[Played] = []
        self._claimers: tuple[str, str] | None = None
        self._serials = count()
        for session in self._sessions:
            # Deadlocks are detected immediately, if the role may set this.
            try:
                session.execute("set deadlock_timeout = '5ms'")
            except psycopg.errors.InsufficientPrivilege:
                break

    def close(self) -> None:
        for session in (*self._sessions, self._scene, self._watch):
            session.close()

    @property
    def settled(self) -> bool:
        """Whether every played schedule has been checked, and no session has an open transaction or statement."""
        if self._pending or self._claimers is not None or self.violations:
            return False
        return not any(session.in_transaction for session in (*self._sessions, self._scene, self._watch))

    def play(self, meeting: Meeting, crashes: Crashes, choose: Choose) -> Played:
        """Bring a new run into the situation and let both actors act, in the order that `choose` gives."""
        for session in (*self._sessions, self._scene, self._watch):
            session.prepare()
        case = self._arranged(meeting)
        parts = [PROGRAMS[name.removesuffix(IMPATIENT)] for name in meeting.programs]
        actors = []
        for who, (name, part) in enumerate(zip(meeting.programs, parts, strict=True)):
            recover = part.recover and partial(part.recover, case, who)
            actors.append(self._actor(name, who, part.make(case, who), recover))
        time_passes = SITUATIONS[meeting.situation].time_passes
        taken, waits = self._act(actors, crashes, choose, time_passes=time_passes)
        done = Played(Schedule(meeting, tuple(taken)), case, actors, waits)
        self.played += 1
        self._pending.append(done)
        # Pruning affects the months of all schedules, so each schedule must clean up after itself.
        if len(self._pending) >= self.batch or SITUATIONS[meeting.situation].old:
            self.judge()
        return done

    def _arranged(self, meeting: Meeting) -> Case:
        if self._claimers is None:
            self._claimers = register(self._scene, LONG), register(self._scene, LONG)
        serial = next(self._serials)
        month = f"19{80 + serial // 12 % 20}_{serial % 12 + 1:02}" if SITUATIONS[meeting.situation].old else None
        return arrange(self._scene, SITUATIONS[meeting.situation], f"{serial}", self._claimers, month)

    def _actor(self, program: str, who: int, does: Program, recover: Callable[[], Program] | None) -> Actor:
        session = self._sessions[who]
        session.wait_for_locks(not program.endswith(IMPATIENT))
        return Actor(ACTORS[who], session, does, recover)

    def _act(
        self, actors: list[Actor], crashes: Crashes, choose: Choose, *, time_passes: bool
    ) -> tuple[list[str], int]:
        """Let actors take steps in the order that `choose` gives. Return the steps, and how often one waited."""
        taken: list[str] = []
        waits = 0
        while options := self._options(actors, taken, crashes, time_passes and TIME_PASSES not in taken):
            step = choose(options)
            taken.append(step)
            if step == TIME_PASSES:
                clock.move(self._scene, PAST_IT)
                waits += self._settle(actors)
                continue
            moved = actors[ACTORS.index(step[0])]
            resting = [actor for actor in actors if actor.resting and actor is not moved]
            moved.step(step[1:] or None)
            waits += self._settle(actors)
            for actor in resting:
                actor.rest_over(moved)
        return taken, waits + sum(actor.refusals for actor in actors)

    def _options(self, actors: list[Actor], taken: list[str], crashes: Crashes, time_to_pass: bool) -> list[str]:
        while True:
            free = [actor for actor in actors if not actor.finished and not actor.waiting]
            free = [actor for actor in free if not actor.resting] or free
            options = [actor.name for actor in free]
            if time_to_pass:
                options.append(TIME_PASSES)
            if crashes is Crashes.NONE or any(len(step) > 1 for step in taken):
                options = _uninterrupted(options, taken, crashes)
            else:
                options += [crash for actor in free for crash in _crashes(actor, taken)]
            if options or not any(actor.waiting for actor in actors):
                return options
            # A deadlock, which Postgres resolves.
            while not any(actor.waiting and actor.poll(1.0) for actor in actors):
                pass
            self._settle(actors)

    def _settle(self, actors: list[Actor]) -> int:
        """Wait until every current statement is done or waits for a lock. Return how many wait."""
        while waiting := [actor for actor in actors if actor.waiting]:
            if any([actor.poll(SOON) for actor in waiting]):  # noqa: C419 - each of them
                continue
            # Only a wait for another actor lasts until that one moves; others, such as for autovacuum, end anyway.
            blocked = self._watch.execute(
                """
                select count(*) from unnest(%(waiting)s::integer[]) as pid
                where pg_blocking_pids(pid) && %(actors)s::integer[]
                """,
                {"waiting": plain_array(actor.pid for actor in waiting), "actors": plain_array(a.pid for a in actors)},
            )
            if blocked[0][0] == len(waiting) and not any(actor.impatient for actor in waiting):
                for actor in waiting:
                    actor.waited = True
                return len(waiting)
        return 0

    def judge(self) -> list[Violation]:
        """Let every played schedule end, and check the results."""
        pending, self._pending = self._pending, []
        if not pending:
            return []
        self._scene.prepare()
        try:
            drain(self._scene)
        except psycopg.Error as error:
            complaints = f"afterwards no worker could continue: {str(error).splitlines()[0]}"
            self.violations += [
                Violation(str(played.schedule), "i17_everything_ends", complaints) for played in pending
            ]
            return self.violations
        ids = [run_id for played in pending for run_id in played.case.ids]
        runs = history.read(self._scene, ids)
        counted = history.counted(self._scene, [played.case.new.task for played in pending])
        found = [
            Violation(str(played.schedule), name, complaint)
            for played in pending
            for name, complaint in _complaints(played, runs, counted[played.case.new.task])
        ]
        forget_months(self._scene, [played.case for played in pending])
        clock.reset(self._scene)
        self._claimers = None
        self.violations += found
        return found


def _uninterrupted(options: list[str], taken: list[str], crashes: Crashes) -> list[str]:
    """After a crash, in the brief way, the acting actor continues to its end."""
    if crashes is Crashes.BRIEF and taken and len(taken[-1]) == 1 and taken[-1] in options:
        return [taken[-1]]
    return options


def _crashes(actor: Actor, taken: list[str]) -> Iterator[str]:
    """The ways in which this actor can crash now. A death outside a transaction is the same whenever it happens."""
    if actor.in_transaction or not taken or taken[-1] == actor.name:
        yield actor.name + DIES
    yield actor.name + (UNANSWERED if actor.ends_transaction() else DROPPED)


def _complaints(played: Played, runs: dict[str, history.History], counted: dict[str, int]) -> Iterator[tuple[str, str]]:
    case, names = played.case, (played.schedule.meeting.first, played.schedule.meeting.second)
    mine = {run_id: runs[run_id] for run_id in case.ids}
    for run in mine.values():
        if run.exists:
            for name, check in invariants.INVARIANTS.items():
                yield from ((name, complaint) for complaint in check(run))
    if "prune" not in names:
        complaints = invariants.counters_are_exact(list(mine.values()), counted)
        yield from (("counters_are_exact", complaint) for complaint in complaints)
    for who, actor in enumerate(played.actors):
        observation = answers.Observation(
            case, who, names[who], names[1 - who], actor.answer, mine, actor.waited, actor.deadlocked
        )
        for complaint in answers.check(observation):
            yield f"{actor.name} received", complaint
