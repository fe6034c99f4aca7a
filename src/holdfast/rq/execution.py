"""One run in one work-horse: a worker that claims a single run by its id, and deregisters when the run has ended.

With RQ, a work-horse survives when its worker is killed, and the run would continue although its worker is gone. So the
work-horse exits too, and the run is rescued when its lease has expired, as after any crash. The exception is a worker
that gave up because Redis was unreachable: no attempt should be lost because of that, so the run continues.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from random import random
from types import FrameType

import redis

from holdfast import ops
from holdfast.assembly.one_run import OneChild, OneRunWorker
from holdfast.assembly.worker import WorkerRequest, child_limits, start_logging, worker_options
from holdfast.domain.ids import parse_id
from holdfast.doorbells.redis import open_redis
from holdfast.doorbells.rq import RunRinger
from holdfast.drivers import psycopg as driver
from holdfast.runtime.rq_sweeper import Sweeper
from holdfast.runtime.runtime import Runtime, connect

POLL_EVERY = 0.25

log = logging.getLogger("holdfast.rq")


def execute(run_id: object) -> None:
    """Execute a run if it can be claimed; otherwise change nothing."""
    known = parse_id(run_id) if isinstance(run_id, str) else None
    if known is None:
        log.warning("refused to execute %.100r: it is not the id of a run", run_id)
        return
    with Runtime() as runtime, ExitStack() as stack:
        stack.callback(start_logging(runtime.settings))
        url = runtime.settings.redis_url
        forked = _is_work_horse()
        if url and forked:
            _end_with_worker(lambda: _answers(url))
        if _claimable(runtime, known):
            options = worker_options(runtime, WorkerRequest(queues=(), slots=1))
            child = OneChild(limits=child_limits(runtime.settings))
            options = replace(options, executors={**options.executors, child.name: child})
            tasks = options.executable_tasks()
            worker = OneRunWorker(options, lambda worker_id: ops.claim_by_id(worker_id, known, tasks, random()))
            # A process that runs other code too, such as an RQ worker that does not fork, keeps its signal handlers.
            if forked:
                worker.run()
            else:
                asyncio.run(worker.serve())
            if not worker.acquired:
                log.info("lease acquisition failed: run %s was claimed by another worker", known)
        else:
            log.info("run %s is not ready, or another worker is executing it: nothing to do", known)
        if url:
            _sweep(runtime, url)


def _claimable(runtime: Runtime, run_id: str) -> bool:
    with connect(runtime.database_url, runtime.settings.pooler) as connection:
        return driver.run(connection, ops.is_claimable(run_id))


def _answers(url: str) -> bool:
    client = open_redis(url)
    try:
        return bool(client.ping())
    except (redis.RedisError, OSError):
        return False
    finally:
        client.close()


def _sweep(runtime: Runtime, url: str) -> None:
    """Ring for runs that became ready in the meantime: a retry of this run, or its dependents."""
    ringer = RunRinger(url, runtime.settings.ring_seconds)
    sweeper = Sweeper(runtime.connect_for_sweep, ringer)
    try:
        sweeper.try_sweep()
    finally:
        sweeper.close()
        ringer.close()


def _is_work_horse() -> bool:
    """Whether this code runs in a process that RQ forked for it. RQ does not expose this, so the stack is searched."""
    from rq.worker import BaseWorker

    frame: FrameType | None = sys._getframe()  # noqa: SLF001
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, BaseWorker):
            return bool(getattr(caller, "is_horse", False))
        frame = frame.f_back
    return False


def _end_with_worker(redis_answers: Callable[[], bool]) -> None:
    """Kill this work-horse as soon as its worker is gone, unless Redis does not answer either."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_EVERY)
        if redis_answers():
            log.error("the rq worker %d is gone, so this work-horse exits", parent)
            os.kill(os.getpid(), signal.SIGKILL)
        log.warning("the rq worker %d gave up while Redis was unreachable; the run continues", parent)

    threading.Thread(target=watch, name="holdfast-horse", daemon=True).start()
