"""`task_finished`, which the worker sends once a run has ended in any way and that is committed.

The process that runs the function cannot know whether its result will be accepted or the task retried, and it may be
killed before it reports. So the worker sends the signal, from a thread, once the database has accepted the end of the
run. Each end that a worker writes is announced once. If a worker was lost, the worker that rescues its run announces
the end. Nothing is announced if the worker dies between the commit and the signal.
"""

from __future__ import annotations

import atexit
import logging
import queue
import threading
from typing import Any, NamedTuple

from django.db import close_old_connections, connections

from holdfast.django.compat import task_backends, task_finished
from holdfast.django.performing import backend_alias, django_task, has_receivers
from holdfast.django.results import STATUSES, make_result
from holdfast.domain.states import Status
from holdfast.observe import subscribe

# For runs that end in a child process, in the worker itself, and for runs whose worker was lost.
EVENTS = ("run.settled", "run.settled_inline", "run.lost")
FINAL = {str(status): status for status in (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED)}
LAST_SECONDS = 10.0

logger = logging.getLogger("holdfast.django")


class TaskFailed(Exception):
    """Replaces the exception of a task that failed in another process, so that Django's log shows it."""


class End(NamedTuple):
    run_id: str
    task: Any
    status: Status
    worker_id: str
    error: str


class Announcer:
    """Receives events from the worker's loop without blocking it, and sends the signals from its own thread."""

    def __init__(self) -> None:
        self._ends: queue.SimpleQueue[End | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def on_event(self, event: str, fields: dict[str, Any]) -> None:
        status, task = FINAL.get(fields["status"]), django_task(fields["task"])
        if status is None or task is None:
            return
        message = fields.get("error") or fields.get("reason") or ""
        self._ends.put(End(fields["run_id"], task, status, fields["worker_id"], message))
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="holdfast-signals", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Send the remaining signals, for a limited time."""
        if self._thread is not None:
            self._ends.put(None)
            self._thread.join(LAST_SECONDS)
            self._thread = None

    def _serve(self) -> None:
        while (end := self._ends.get()) is not None:
            try:
                announce(end)
            except Exception:
                logger.exception("the signal task_finished of run %s could not be sent", end.run_id)
            finally:
                close_old_connections()
        connections.close_all()


def announce(end: End) -> None:
    """Send `task_finished` for a run that has ended."""
    backend = task_backends[backend_alias(end.task)]
    if has_receivers(task_finished):
        result = backend.get_result(end.run_id)
    else:
        result = make_result(
            end.task, id=end.run_id, status=STATUSES[end.status], args=[], kwargs={}, worker_ids=[end.worker_id]
        )
    if end.status is Status.SUCCEEDED:
        task_finished.send_robust(sender=type(backend), task_result=result)
        return
    try:
        raise TaskFailed(result.errors[-1].traceback if result.errors else end.error)
    except TaskFailed:
        # Django's receiver logs the exception that is being handled.
        task_finished.send_robust(sender=type(backend), task_result=result)


_announcer: Announcer | None = None


def start() -> None:
    """Announce runs that this process settles from now on."""
    global _announcer
    if _announcer is None:
        _announcer = Announcer()
        subscribe(_announcer.on_event, EVENTS.__contains__)
        atexit.register(_announcer.close)


def flush() -> None:
    """Wait until everything has been announced."""
    if _announcer is not None:
        _announcer.close()
