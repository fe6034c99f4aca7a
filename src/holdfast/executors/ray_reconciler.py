"""Supervises the Ray jobs of all workers. Every worker with the executor ray_job takes part.

A job that has taken over its run does not depend on a worker. But a worker copies the job's log while it runs, stops
it if it ignores a cancel, records what Ray reports when it is gone, and stops jobs whose attempts have ended: jobs that
hang, and jobs that waited in Ray until their attempt was lost. Each attempt is checked by one worker at a time.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from functools import partial

from holdfast.domain.execution import RemoteAttempt, RemoteAttempts
from holdfast.domain.ids import parse_id
from holdfast.domain.masking import mask_secrets
from holdfast.domain.values import AttemptRef
from holdfast.executors.performing import clean
from holdfast.executors.ray_jobs_api import JobInfo, RayAway, RayJobs, RayRefused
from holdfast.observe import emit
from holdfast.processes.threads import in_thread

CHECK_EVERY = 5.0
LINES_AT_ONCE = 500
LINE_LENGTH = 4000
MESSAGE_LENGTH = 2000
COPIED_AT_MOST = 1_000_000
# Stored instead of the number of characters copied once there is nothing more to copy.
END_NOTED = COPIED_AT_MOST + 1
# A cancelled job stops by itself within the grace period. If it has not stopped this much later, Ray stops it.
STOP_AFTER = 10.0

_ID = re.compile(r"holdfast-([0-9a-f-]{36})-(\d+)-[0-9a-f]{12}")


def submission_id(ref: AttemptRef, worker_id: str) -> str:
    """The job id of an attempt. It includes the worker, because a released claim keeps its attempt number."""
    return f"holdfast-{ref.run_id}-{ref.number}-{worker_id[-12:]}"


def attempt_of(id_: str) -> AttemptRef | None:
    """The attempt that a job with this id executes; None if it is not a Holdfast job."""
    found = _ID.fullmatch(id_)
    return AttemptRef(found[1], int(found[2])) if found and parse_id(found[1]) else None


class Reconciler:
    """Supervises the jobs of one cluster."""

    def __init__(self, ray: RayJobs, attempts: RemoteAttempts, grace: float) -> None:
        self._ray = ray
        self._attempts = attempts
        self._grace = grace
        self._stopped: set[str] = set()

    async def reconcile(self) -> None:
        """Check all jobs once. Raise RayAway or DatabaseUnreachable if one of them does not respond."""
        due = await self._attempts.look_after(self._ray.address, CHECK_EVERY * 0.8)
        listed = await in_thread(self._ray.list)
        for attempt in due:
            info = listed.get(attempt.submission_id)
            if info is None or info.ended:
                await self._note_end(attempt, info)
            else:
                await self._copy_log(attempt, info)
                if (attempt.cancelled_for or 0.0) > self._grace + STOP_AFTER:
                    await self._stop(attempt.submission_id)
        await self._stop_leftovers(listed)

    async def _copy_log(self, attempt: RemoteAttempt, info: JobInfo) -> None:
        """Copy the complete lines that have been added since the last check."""
        found = {"ray_job_id": info.job_id, "ray_node_id": info.node_id}
        details = {name: value for name, value in found.items() if value} if attempt.node_id is None else {}
        if attempt.log_copied >= COPIED_AT_MOST:
            return
        log = await in_thread(partial(self._ray.log, attempt.submission_id, COPIED_AT_MOST))
        new = log[attempt.log_copied :]
        lines = new[: new.rfind("\n") + 1].splitlines(keepends=True)[:LINES_AT_ONCE]
        if lines or details:
            copied = attempt.log_copied + sum(map(len, lines))
            texts = [clean(mask_secrets(line.rstrip("\r\n")), LINE_LENGTH) for line in lines]
            await self._attempts.note(attempt, copied, [("info", text) for text in texts if text], details)

    async def _note_end(self, attempt: RemoteAttempt, info: JobInfo | None) -> None:
        """Log once what Ray reports about a job that is gone. The lease decides whether its attempt is lost."""
        if attempt.log_copied == END_NOTED:
            return
        said = "has no record of it" if info is None else f"says {info.status}, exit code {info.exit_code}"
        message = f"job {attempt.submission_id} is gone: Ray {said}. {info.message if info else ''}"
        line = ("error", clean(mask_secrets(message[:MESSAGE_LENGTH]), LINE_LENGTH))
        await self._attempts.note(attempt, END_NOTED, [line], {})

    async def _stop_leftovers(self, listed: Mapping[str, JobInfo]) -> None:
        refs = {id_: ref for id_, info in listed.items() if not info.ended and (ref := attempt_of(id_)) is not None}
        over = await self._attempts.over(list(refs.values())) if refs else set()
        for id_, ref in refs.items():
            if ref in over and id_ not in self._stopped:
                await self._stop(id_)
        self._stopped &= set(listed)

    async def _stop(self, id_: str) -> None:
        self._stopped.add(id_)
        emit("ray.stopping", submission_id=id_)
        with contextlib.suppress(RayAway, RayRefused):
            await in_thread(partial(self._ray.stop, id_))
