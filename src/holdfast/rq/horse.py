"""A work-horse ends with the `rq worker` that forked it.

RQ lets a work-horse live on when its worker is killed. A run would then go on under a worker that is gone as far as
anyone can see; so the work-horse goes too, and the run is taken over when its lease has passed, as after any crash.
The exception is a worker that gave up because Redis was away: that is no reason to lose an attempt, so the run goes on.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

LOOK_EVERY = 0.25

log = logging.getLogger("holdfast.rq")


def is_work_horse() -> bool:
    """Whether this code runs in a process that RQ forked for it. RQ tells only those who look up the stack."""
    from rq.worker import BaseWorker

    frame: FrameType | None = sys._getframe()  # noqa: SLF001
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, BaseWorker):
            return bool(getattr(caller, "is_horse", False))
        frame = frame.f_back
    return False


def end_with_worker(redis_answers: Callable[[], bool]) -> None:
    """Have this work-horse die as soon as its worker is gone, unless Redis is gone with it."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_EVERY)
        if redis_answers():
            log.error("the rq worker %d is gone, and this work-horse with it", parent)
            os.kill(os.getpid(), signal.SIGKILL)
        log.warning("the rq worker %d gave up while Redis was away; the run goes on", parent)

    threading.Thread(target=watch, name="holdfast-horse", daemon=True).start()
