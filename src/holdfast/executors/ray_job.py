"""Runs as Ray jobs, for long or heavy runs with their own environment.

The worker submits a job, and the job takes over the run: it is a worker for one run, which gets the lease in one fenced
statement, renews it, executes the run and settles it (`holdfast.rayjob`). From then on the run continues even if this
worker dies. Until then the run belongs to this worker, which ends it if it is cancelled, or if the job ends without
taking it over. Only ids are sent through Ray's job API, and Ray's status of a job is only a hint; the lease decides.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import uniform
from time import monotonic
from typing import Any

from holdfast.domain.errors import DatabaseUnreachable, LeaseLost
from holdfast.domain.execution import Ended, ExecutorContext, TakenOver
from holdfast.domain.masking import mask_secrets
from holdfast.domain.reasons import LeaseRequest, ReasonCode
from holdfast.domain.settling import Failed, HandedBack, Outcome, stopped_by
from holdfast.domain.tasks import Task, registry
from holdfast.domain.values import AttemptRef, Claim
from holdfast.executors.ray_jobs_api import JobInfo, RayAway, RayJobs, RayRefused
from holdfast.executors.ray_reconciler import CHECK_EVERY, Reconciler, submission_id
from holdfast.executors.ray_resources import of_job
from holdfast.observe import emit
from holdfast.processes.threads import in_thread

ENTRYPOINT = "exec python -u -m holdfast.rayjob {run_id} {number} {worker_id}"
POLL_EVERY = 1.0
SUBMIT_WITHIN = 60.0
STOP_WITHIN = 5.0
# Ray gives up on a job that it cannot schedule within 900 s; a job that has not begun some time later never will.
START_WITHIN = 1000.0
MESSAGE_LENGTH = 2000


@dataclass(eq=False, slots=True)
class _Job:
    claim: Claim
    worker_id: str
    submitted_at: float | None = None
    taken_over: bool = False
    given_at: float = field(default_factory=monotonic)

    @property
    def id(self) -> str:
        return submission_id(self.claim.ref, self.worker_id)


class RayJobExecutor:
    """Submits runs as jobs. A job occupies its slot until it has ended in Ray, whichever process holds its lease."""

    name = "ray_job"

    def __init__(self, slots: int, jobs: RayJobs, environments: Mapping[str, Mapping[str, Any]]) -> None:
        self.slots = slots
        self._environments = environments
        self._ray = jobs
        self._jobs: dict[AttemptRef, _Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping: list[asyncio.Task[None]] = []
        self._away: str | None = "not asked yet"
        self._killed = False

    async def open(self, context: ExecutorContext) -> None:
        self._context = context
        self._start(self._check_submitted())
        if context.remote_attempts is not None:
            self._start(self._reconcile_all(Reconciler(self._ray, context.remote_attempts, context.limits.grace)))

    def give(self, worker_id: str, claims: Sequence[Claim]) -> None:
        for claim in claims:
            job = self._jobs[claim.ref] = _Job(claim, worker_id)
            self._start(self._submit(job))

    def room(self) -> int:
        return 0 if self._away else max(0, self.slots - len(self._jobs))

    def stop(self, ref: AttemptRef, request: LeaseRequest) -> None:
        job = self._jobs.get(ref)
        if job is not None and not job.taken_over:
            self._start(self._cancel(job, request))

    def take_back(self, waiting_for: float = 0.0) -> list[Claim]:
        """With 0, return all runs that are not known to be taken over; the fence rejects the release of the others."""
        back = [] if waiting_for else [job for job in self._jobs.values() if not job.taken_over]
        for job in back:
            self._forget(job)
            if job.submitted_at is not None:
                self._stopping.append(self._start(self._stop_on_ray(job)))
        return [job.claim for job in back]

    def kill(self) -> None:
        """Nothing runs in this process, and a job that has not taken over its run yet is rejected by the fence."""
        self._killed = True

    async def unbegun(self) -> list[Claim]:
        claims = self.take_back()
        self._killed = False
        return claims

    async def close(self) -> None:
        self._killed = True
        if self._stopping:
            await asyncio.wait(self._stopping, timeout=STOP_WITHIN)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _forget(self, job: _Job) -> None:
        if self._jobs.get(job.claim.ref) is job:
            del self._jobs[job.claim.ref]

    def _end(self, job: _Job, outcome: Outcome | TakenOver) -> None:
        if self._jobs.get(job.claim.ref) is not job or self._killed:
            return
        if not isinstance(outcome, TakenOver):
            self._forget(job)
        self._context.report([Ended(job.claim, outcome)])

    async def _submit(self, job: _Job) -> None:
        """Record the job's id in the attempt, then submit the job, retrying while Ray does not respond."""
        claim = job.claim
        task = registry.find(claim.task)
        entrypoint = ENTRYPOINT.format(run_id=claim.run_id, number=claim.number, worker_id=job.worker_id)
        log_ref = f"{self._ray.address}/api/jobs/{job.id}/logs"
        details = {"ray_submission_id": job.id, "ray_address": self._ray.address, "log_ref": log_ref}
        try:
            await self._context.attempt_services.describe(claim.ref, details)
        except LeaseLost:
            self._forget(job)
            return
        pause = 0.5
        while self._jobs.get(claim.ref) is job:
            try:
                needs = self._needs(task)
                await in_thread(partial(self._ray.submit, job.id, entrypoint, needs))
            except RayAway as error:
                self._note_away(str(error))
                if monotonic() - job.given_at > SUBMIT_WITHIN:
                    self._end(job, HandedBack())
                    return
                await asyncio.sleep(pause)
                pause = min(10.0, pause * 2)
            except (RayRefused, ValueError) as error:
                self._end(job, _failed("RayJobRefused", str(error)))
                return
            else:
                self._note_back()
                job.submitted_at = monotonic()
                emit("ray.submitted", run_id=claim.run_id, attempt_count=claim.number, submission_id=job.id)
                return

    def _needs(self, task: Task | None) -> dict[str, Any]:
        """Resources and environment of a job. Raise ValueError if its environment is not configured."""
        needs = of_job(task.resources if task else None)
        if task is not None and task.environment is not None:
            if task.environment not in self._environments:
                raise ValueError(f"no environment {task.environment!r} in HOLDFAST_RAY_ENVIRONMENTS")
            needs["runtime_env"] = dict(self._environments[task.environment])
        return needs

    async def _cancel(self, job: _Job, request: LeaseRequest) -> None:
        """End a cancelled run here, unless it has been taken over; it can no longer be taken over now."""
        while self._jobs.get(job.claim.ref) is job and not job.taken_over:
            try:
                held = await self._held([job])
            except DatabaseUnreachable:
                await asyncio.sleep(POLL_EVERY)
                continue
            if held:
                await self._stop_on_ray(job)
                self._end(job, stopped_by(request, 0.0))
            return

    async def _stop_on_ray(self, job: _Job) -> None:
        with contextlib.suppress(RayAway, RayRefused):
            await in_thread(partial(self._ray.stop, job.id))

    async def _check_submitted(self) -> None:
        while True:
            try:
                if self._away:
                    await in_thread(self._ray.version)
                    self._note_back()
                submitted = [job for job in self._jobs.values() if job.submitted_at is not None]
                if submitted:
                    await self._check_jobs(submitted)
            except RayAway as error:
                self._note_away(str(error))
            except (RayRefused, DatabaseUnreachable) as error:
                emit("ray.not_reconciled", error=str(error))
            await asyncio.sleep(POLL_EVERY * uniform(0.7, 1.3))

    async def _reconcile_all(self, reconciler: Reconciler) -> None:
        """Supervise the jobs of all workers, including dead ones."""
        while True:
            try:
                await reconciler.reconcile()
            except (RayAway, RayRefused, DatabaseUnreachable) as error:
                emit("ray.not_reconciled", error=str(error))
            await asyncio.sleep(CHECK_EVERY * uniform(0.7, 1.3))

    async def _check_jobs(self, jobs: list[_Job]) -> None:
        """Query Ray before the database: an ended job whose lease is still ours then never took over the run."""
        found = await self._find(jobs)
        held = await self._held([job for job in jobs if not job.taken_over])
        for job, info in found.items():
            ended = info is None or info.ended
            if job not in held:
                if not job.taken_over:
                    job.taken_over = True
                    self._end(job, TakenOver())
                if ended:
                    self._forget(job)
            elif ended:
                self._end(job, await self._why_not_begun(job, info))
            elif monotonic() - (job.submitted_at or 0.0) > START_WITHIN:
                await self._stop_on_ray(job)
                self._end(job, _failed("RayJobNotStarted", f"Ray did not start job {job.id} within {START_WITHIN:g} s"))

    async def _find(self, jobs: Sequence[_Job]) -> dict[_Job, JobInfo | None]:
        """What Ray says about these jobs, in one request. A job that the list lacks is asked for: it may be lost."""
        listed = await in_thread(self._ray.list) if len(jobs) > 1 else {}
        return {job: listed.get(job.id) or await in_thread(partial(self._ray.find, job.id)) for job in jobs}

    async def _held(self, jobs: Sequence[_Job]) -> set[_Job]:
        """Return the jobs whose runs this worker still holds."""
        refs = await self._context.attempt_services.still_held([job.claim.ref for job in jobs]) if jobs else set()
        return {job for job in jobs if job.claim.ref in refs}

    async def _why_not_begun(self, job: _Job, info: JobInfo | None) -> Failed:
        if info is None:
            error = {"class": "RayJobLost", "message": f"Ray has no record of job {job.id}", "traceback": None}
            return Failed(error, reason=ReasonCode.CRASH, elapsed=None, lost=True)
        said = info.message
        with contextlib.suppress(RayAway, RayRefused):
            said = said + "\n" + await in_thread(partial(self._ray.logs, job.id))
        message = f"job {job.id} ended {info.status} without taking over the run: {said.strip()[-MESSAGE_LENGTH:]}"
        return _failed("RayJobFailed", message, exit_code=info.exit_code)

    def _note_away(self, why: str) -> None:
        if self._away != why:
            emit("ray.away", error=why)
            self._context.note_away(mask_secrets(why[:300]))
        self._away = why

    def _note_back(self) -> None:
        if self._away:
            self._context.note_away(None)
        self._away = None


def _failed(kind: str, message: str, exit_code: int | None = None) -> Failed:
    error = {"class": kind, "message": mask_secrets(message), "traceback": None}
    return Failed(error, exit_code=exit_code, elapsed=None)
