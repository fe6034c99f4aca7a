"""Afterwards: time passes, expired leases are rescued, and a new worker executes everything that is left."""

from __future__ import annotations

from datetime import timedelta

from holdfast import ops
from holdfast.domain.settling import Succeeded, settle
from holdfast.domain.values import Position
from holdfast.sql import jobs, ready
from holdfast.testing import clock
from tests.explorer.situations import LONG, register
from tests.explorer.wire import Session

ROUNDS = 20


def drain(session: Session) -> None:
    """Let every lease expire, every run become due and every queue resume; execute runs until nothing is left to do."""
    session.execute("delete from holdfast.queues")
    for _ in range(ROUNDS):
        clock.move(session, LONG + timedelta(days=1))
        worker = register(session, LONG)
        orphans = session.run(ops.find_orphans(1000))
        for orphan in orphans:
            session.run(ops.rescue([orphan], 0.5))
        promoted, _ = session.run(ops.promote(10_000))
        session.run(iter(jobs.start_late(10_000)))
        session.run(iter(ready.name_tasks(10_000)))
        claims = []
        for queue, task in session.run(iter(ready.by_task())):
            claims += session.run(ops.claim(worker, [Position(queue)], [task], 1000))
        settlements = [settle(claim, Succeeded(result='"drained"'), 0.5) for claim in claims]
        if settlements:
            session.run(ops.finish(worker, settlements))
        if not (orphans or promoted or claims):
            return
