"""One run of the harness: a server, workers, users, faults at random times, and a check of the results at the end."""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg import sql

from holdfast import Client
from holdfast.runtime.settings import Settings
from holdfast.schema.migrate import upgrade
from tests.chaos.faults import FAULTS, NAMES, Fault, NotPossible, Stage
from tests.chaos.fleet import Fleet, Member
from tests.chaos.judge import Judge, Notes
from tests.chaos.load import Ledger, User
from tests.chaos.servers import DATABASE, Owner, Pooler, Postgres, until
from tests.integration.wire import Wire

TICK = 0.02
SAMPLE_EVERY = 1.0
DRAIN_SECONDS = 90.0
TASKS = ("tests.chaos.tasks", "tests.chaos.tasks,tests.chaos.tasks_rare")
ROUTES = ("pooler", "direct", "pooler", "wire")


@dataclass(frozen=True)
class Options:
    seconds: float = 600.0
    seed: int = 0
    workers: int = 8
    users: int = 3
    rate: float = 8.0
    pace: float = 1.2
    lease: float = 3.0
    postgres: str | None = None
    pooler: bool = True
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    keep: Path | None = None

    def faults(self) -> dict[Fault, int]:
        chosen = {NAMES[name]: FAULTS[NAMES[name]] for name in self.only} if self.only else dict(FAULTS)
        return {fault: weight for fault, weight in chosen.items() if fault.__name__ not in self.without}


@dataclass
class Report:
    """What was done, and the results."""

    options: Options
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    exits: Counter[str] = field(default_factory=Counter)
    endings: Counter[tuple[str, str]] = field(default_factory=Counter)
    attempts: Counter[tuple[str, str]] = field(default_factory=Counter)
    backends: int = 0
    drained_in: float = 0.0
    acknowledged: int = 0
    pooled: bool = False
    version: str = ""
    violations: list[str] = field(default_factory=list)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def run(options: Options) -> Report:
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # it would log each session that was cut
    report = Report(options)
    with directory(options.keep) as place:
        Chaos(options, report, place).run()
    return report


@contextmanager
def directory(kept: Path | None) -> Iterator[Path]:
    """A directory for everything: in memory if there is enough, and removed afterwards unless it is kept."""
    if kept is not None:
        kept.mkdir(parents=True)
        kept.chmod(0o711)
        yield kept.resolve()
        return
    memory = Path("/dev/shm")
    roomy = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2 * 1024**3
    place = Path(tempfile.mkdtemp(prefix="holdfast-chaos-", dir=memory if roomy else None))
    place.chmod(0o711)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


class Chaos:
    def __init__(self, options: Options, report: Report, place: Path) -> None:
        self._options = options
        self._report = report
        self._place = place
        self._dice = random.Random(options.seed)
        self._undo: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._sampled = 0.0

    def run(self) -> None:
        owner = Owner()
        postgres = Postgres(self._place, self._options.postgres, owner)
        pooler = None
        wire = None
        stage = None
        try:
            postgres.start()
            self._prepare(postgres)
            if self._options.pooler and Pooler.available():
                pooler = Pooler(self._place, postgres.port, owner)
                pooler.start()
            self._report.pooled = pooler is not None
            wire = Wire(postgres.url)
            stage = self._stage(postgres, pooler, wire)
            self._play(stage)
        finally:
            if stage is not None:
                stage.fleet.close()
                stage.client.close()
            if wire is not None:
                wire.close()
            if pooler is not None:
                pooler.kill()
            postgres.end(signal.SIGINT)

    def _prepare(self, postgres: Postgres) -> None:
        with postgres.connect("postgres") as connection:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(DATABASE)))
            self._report.version = str(connection.execute("show server_version").fetchone()[0])  # type: ignore[index]
        upgrade(postgres.url)
        with postgres.connect() as connection:
            connection.execute("create table effects (run_id uuid not null, attempt int not null)")
            connection.execute("create table orders (run_id uuid primary key)")

    def _stage(self, postgres: Postgres, pooler: Pooler | None, wire: Wire) -> Stage:
        urls = {"direct": postgres.url, "wire": wire.url, "pooler": pooler.url if pooler else postgres.url}
        members = []
        for number in range(self._options.workers):
            route = ROUTES[number % len(ROUTES)]
            if route == "pooler" and pooler is None:
                route = "direct"
            members.append(Member(str(number), route, urls[route], TASKS[number % 3 != 2]))
        settings = Settings(
            database_url=postgres.url, artifacts=str(self._place / "artifacts"), tasks=tuple(TASKS[1].split(","))
        )
        fleet = Fleet(self._place, members, self._options.lease)
        return Stage(postgres, pooler, wire, fleet, Client(settings), Ledger(), self._options.lease)

    def _play(self, stage: Stage) -> None:
        options, report = self._options, self._report
        for member in stage.fleet.members:
            stage.fleet.start(member)
        users = [
            User(number, options.seed, stage.client, stage.postgres.url, stage.ledger, options.rate / options.users)
            for number in range(1, options.users + 1)
        ]
        began = time.monotonic()
        for user in users:
            user.start()
        try:
            self._torture(stage, began + options.seconds)
        finally:
            self._make_whole(stage)
            for user in users:
                user.stop()
        for thread in (*users, *stage.threads):
            thread.join(DRAIN_SECONDS)
            if thread.is_alive():
                report.violations.append(f"STUCK: {thread.name} did not get its answer within {DRAIN_SECONDS:g} s")
        report.drained_in = self._drain(stage)
        report.seconds = time.monotonic() - began
        self._judge(stage)

    def _torture(self, stage: Stage, ends: float) -> None:
        faults = self._faults()
        due = time.monotonic() + self._dice.expovariate(1 / self._options.pace)
        while time.monotonic() < ends:
            self._tend(stage)
            if time.monotonic() >= due:
                self._strike(stage, next(faults))
                due = time.monotonic() + self._dice.expovariate(1 / self._options.pace)
            time.sleep(TICK)

    def _faults(self) -> Iterator[Fault]:
        """Each fault once in random order, then by weight, so that a short run has all of them too."""
        weights = self._options.faults()
        yield from self._dice.sample(list(weights), len(weights))
        while True:
            yield from self._dice.choices(list(weights), list(weights.values()))

    def _tend(self, stage: Stage) -> None:
        now = time.monotonic()
        while self._undo and self._undo[0][0] <= now:
            self._mend(heapq.heappop(self._undo)[2])
        stage.fleet.tend()
        if now > self._sampled + SAMPLE_EVERY:
            self._sampled = now
            with suppress(psycopg.OperationalError):
                self._report.backends = max(self._report.backends, len(stage.postgres.backends()))

    def _strike(self, stage: Stage, fault: Fault) -> None:
        # Each fault has its own random generator, so that an impossible fault does not change later ones.
        dice = random.Random(self._dice.random())
        try:
            undo = fault(stage, dice)
        except (NotPossible, psycopg.OperationalError):
            self._report.skipped[fault.__name__] += 1
            return
        self._report.faults[fault.__name__] += 1
        if undo is not None:
            seconds, mend = undo
            heapq.heappush(self._undo, (time.monotonic() + seconds, next(self._numbers), mend))

    def _mend(self, undo: Callable[[], None]) -> None:
        """Undo a fault once the server responds: another fault may have stopped it in the meantime."""

        def undone() -> bool:
            with suppress(psycopg.OperationalError):
                undo()
                return True
            return False

        until(undone, DRAIN_SECONDS, "a fault can be undone")

    def _make_whole(self, stage: Stage) -> None:
        """Undo all active faults immediately, so that everything works from now on."""
        stage.postgres.start()
        while self._undo:
            self._mend(heapq.heappop(self._undo)[2])
        stage.wire.mend()
        for member in stage.fleet.members:
            stage.fleet.thaw(member)

    def _drain(self, stage: Stage) -> float:
        """Wait until all runs have ended; those that have not by then are stuck."""
        began = time.monotonic()
        while time.monotonic() < began + DRAIN_SECONDS:
            stage.fleet.tend()
            with suppress(psycopg.OperationalError), stage.postgres.connect() as connection:
                left = connection.execute(
                    "select exists (select from holdfast.ready) or exists (select from holdfast.leases)"
                    " or exists (select from holdfast.waiting)"
                    " or exists (select from holdfast.jobs where outcome is null)"
                ).fetchone()
                if left == (False,):
                    break
            time.sleep(0.2)
        return time.monotonic() - began

    def _judge(self, stage: Stage) -> None:
        report, ledger = self._report, stage.ledger
        with stage.postgres.connect() as connection:
            judge = Judge(connection, stage.client, ledger, Notes(self._place / "notes"))
            report.violations += judge.stuck()
            stage.fleet.close()
            report.violations += judge.violations(stage.postgres.url)
        report.violations += [f"WORKERS: {one}" for one in stage.fleet.complaints]
        report.calls, report.errors, report.exits = ledger.calls, ledger.errors, stage.fleet.exits
        report.endings, report.attempts = judge.endings, judge.attempts
        report.acknowledged = len(ledger.runs)
