"""Faults of the workers, the server, the pooler and the network. Each fault returns when it is undone, if ever.

    begin(stage, dice) -> None, or (seconds, undo)

A seeded random generator decides which fault comes next, when, and how long it lasts, so a seed gives the same sequence
again. A fault that is not possible at the moment (no pooler, a server that is starting) is counted as such.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from psycopg import sql

from holdfast import Client
from tests.chaos.fleet import Fleet, Member
from tests.chaos.load import Ledger, hold_locks
from tests.chaos.servers import DATABASE, Pooler, Postgres
from tests.integration.wire import Wire

Undo = tuple[float, Callable[[], None]]


class NotPossible(Exception):
    """The fault is not possible in the current state of the stage."""


@dataclass
class Stage:
    """Everything that faults can affect."""

    postgres: Postgres
    pooler: Pooler | None
    wire: Wire
    fleet: Fleet
    client: Client
    ledger: Ledger
    lease: float
    read_only: bool = False
    threads: list[threading.Thread] = field(default_factory=list)

    def worker(self, dice: random.Random) -> Member:
        """A running worker that has no fault at the moment."""
        member = dice.choice(self.fleet.members)
        if not member.running or member.leaving or member.frozen:
            raise NotPossible
        return member


Fault = Callable[[Stage, random.Random], Undo | None]


def kill_tree(stage: Stage, dice: random.Random) -> None:
    stage.fleet.kill_tree(stage.worker(dice))


def kill_supervisor(stage: Stage, dice: random.Random) -> None:
    stage.fleet.kill_supervisor(stage.worker(dice))


def kill_children(stage: Stage, dice: random.Random) -> None:
    for pid in _children(stage, dice)[1]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_a_child(stage: Stage, dice: random.Random) -> None:
    with suppress(ProcessLookupError):
        os.kill(dice.choice(_children(stage, dice)[1]), signal.SIGKILL)


def freeze_briefly(stage: Stage, dice: random.Random) -> Undo:
    return _freeze(stage, dice, dice.uniform(0.05, 0.7) * stage.lease)


def freeze_past_the_lease(stage: Stage, dice: random.Random) -> Undo:
    return _freeze(stage, dice, dice.uniform(1.1, 2.0) * stage.lease)


def freeze_a_child(stage: Stage, dice: random.Random) -> Undo:
    member, pids = _children(stage, dice)
    stage.fleet.freeze(member, [dice.choice(pids)])
    return dice.uniform(0.1, 3.0) * stage.lease, lambda: stage.fleet.thaw(member)


def restart_worker(stage: Stage, dice: random.Random) -> None:
    stage.fleet.ask_to_stop(stage.worker(dice))


def cut_sessions(stage: Stage, dice: random.Random) -> None:
    """End about half of the sessions, or all of them."""
    share = dice.choice([0.5, 1.0])
    with stage.postgres.connect() as connection:
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = %s and application_name <> 'chaos' and random() < %s",
            [DATABASE, share],
        )


def cut_wire(stage: Stage, dice: random.Random) -> Undo:
    stage.wire.cut()
    return dice.uniform(0.0, 0.4), stage.wire.mend


def silence_wire(stage: Stage, dice: random.Random) -> Undo:
    """No data passes for a while, then the connections break."""
    stage.wire.swallow()

    def undo() -> None:
        stage.wire.cut()
        stage.wire.mend()

    return dice.uniform(0.1, 1.5) * stage.lease, undo


def kill_pooler(stage: Stage, dice: random.Random) -> None:
    if stage.pooler is None:
        raise NotPossible
    stage.pooler.kill()
    stage.pooler.start()


def crash_backend(stage: Stage, dice: random.Random) -> None:
    """Kill one session's process: the server ends all others, recovers, and continues."""
    backends = stage.postgres.backends()
    if not backends:
        raise NotPossible
    with suppress(ProcessLookupError):
        os.kill(dice.choice(backends), signal.SIGKILL)


def restart_server_at_once(stage: Stage, dice: random.Random) -> None:
    stage.postgres.end(signal.SIGQUIT)
    stage.postgres.start()


def kill_server(stage: Stage, dice: random.Random) -> None:
    stage.postgres.end(signal.SIGKILL)
    stage.postgres.start()


def read_only_database(stage: Stage, dice: random.Random) -> Undo:
    """End all sessions, and make new ones read-only, as if another server had taken over."""
    return _read_only(stage, dice.uniform(0.001, 0.4), by_database=True)


def read_only_server(stage: Stage, dice: random.Random) -> Undo:
    """Make existing sessions read-only between two statements."""
    return _read_only(stage, dice.uniform(0.001, 0.4), by_database=False)


def read_only_past_the_lease(stage: Stage, dice: random.Random) -> Undo:
    return _read_only(stage, dice.uniform(1.2, 2.0) * stage.lease, by_database=dice.random() < 0.5)


def standby(stage: Stage, dice: random.Random) -> Undo:
    """Restart the server as a standby, which rejects writes whatever a session sets, and promote it later."""
    if stage.read_only:
        raise NotPossible
    stage.postgres.demote()
    stage.read_only = True

    def undo() -> None:
        stage.postgres.promote()
        stage.read_only = False

    return dice.choice([dice.uniform(0.001, 0.4), dice.uniform(0.5, 1.5) * stage.lease]), undo


def hold_user_locks(stage: Stage, dice: random.Random) -> None:
    """An application's transaction that touches a job and runs stays open for a while."""
    seconds, own = dice.uniform(0.05, 3.0) * stage.lease, random.Random(dice.random())

    def hold() -> None:
        hold_locks(stage.client, stage.postgres.url, stage.ledger, own, seconds)

    thread = threading.Thread(target=hold, name="chaos-locks", daemon=True)
    thread.start()
    stage.threads.append(thread)


def _children(stage: Stage, dice: random.Random) -> tuple[Member, list[int]]:
    member = stage.worker(dice)
    pids = stage.fleet.children_of(member)
    if not pids:
        raise NotPossible
    return member, pids


def _freeze(stage: Stage, dice: random.Random, seconds: float) -> Undo:
    member = stage.worker(dice)
    stage.fleet.freeze_tree(member)
    return seconds, lambda: stage.fleet.thaw(member)


def _read_only(stage: Stage, seconds: float, *, by_database: bool) -> Undo:
    if stage.read_only:
        raise NotPossible
    _set_read_only(stage, by_database, on=True)
    stage.read_only = True

    def undo() -> None:
        _set_read_only(stage, by_database, on=False)
        stage.read_only = False

    return seconds, undo


def _set_read_only(stage: Stage, by_database: bool, *, on: bool) -> None:
    value = sql.SQL("on" if on else "off")
    with stage.postgres.connect("postgres") as connection:
        if not by_database:
            connection.execute(sql.SQL("alter system set default_transaction_read_only = {}").format(value))
            connection.execute("select pg_reload_conf()")
            return
        alter = sql.SQL("alter database {} set default_transaction_read_only = {}")
        connection.execute(alter.format(sql.Identifier(DATABASE), value))
        connection.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [DATABASE])


# The weight of each fault in the random choice.
FAULTS: dict[Fault, int] = {
    kill_tree: 8,
    kill_supervisor: 4,
    kill_children: 4,
    kill_a_child: 6,
    freeze_briefly: 6,
    freeze_past_the_lease: 4,
    freeze_a_child: 4,
    restart_worker: 5,
    cut_sessions: 8,
    cut_wire: 5,
    silence_wire: 3,
    kill_pooler: 4,
    crash_backend: 3,
    restart_server_at_once: 3,
    kill_server: 2,
    read_only_database: 10,
    read_only_server: 10,
    read_only_past_the_lease: 2,
    standby: 6,
    hold_user_locks: 10,
}
NAMES: dict[str, Fault] = {fault.__name__: fault for fault in FAULTS}
