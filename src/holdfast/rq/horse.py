"""A work-horse ends with the `rq worker` that forked it.

With RQ, a work-horse survives when its worker is killed, and the run would continue although its worker is gone. So the
work-horse exits too, and the run is rescued when its lease has expired, as after any crash. The exception is a worker
that gave up because Redis was unreachable: no attempt should be lost because of that, so the run continues.
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

POLL_EVERY = 0.25

log = logging.getLogger("holdfast.rq")


def is_work_horse() -> bool:
    """Whether this code runs in a process that RQ forked for it. RQ does not expose this, so the stack is searched."""
    from rq.worker import BaseWorker

    frame: FrameType | None = sys._getframe()  # noqa: SLF001
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, BaseWorker):
            return bool(getattr(caller, "is_horse", False))
        frame = frame.f_back
    return False


def end_with_worker(redis_answers: Callable[[], bool]) -> None:
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
