"""The worker of a Ray job: it takes an attempt over, has its child execute it, and settles it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace

from holdfast.assembly.one_run import OneChild, OneRunWorker
from holdfast.assembly.worker import WorkerRequest, child_limits, start_logging, worker_options
from holdfast.domain.values import AttemptRef
from holdfast.executors.forked import EarlyChild
from holdfast.observe import emit
from holdfast.ops.take_over import take_over
from holdfast.rayjob import EXECUTOR
from holdfast.runtime.runtime import Runtime
from holdfast.runtime.settings import Settings
from holdfast.worker import WorkerOptions

# Seconds before the job listens for hints and does upkeep, so that a short run does not wait for these connections.
QUIET_START = 1.0
REFUSED = 3  # the exit code of a job that could not take over its attempt


def execute(settings: Settings, early: EarlyChild, ref: AttemptRef, claimed_by: str) -> int:
    """Take the attempt over, execute and settle it. Return the exit code of the job."""
    with Runtime(settings, purpose="worker") as runtime, ExitStack() as stack:
        stack.callback(start_logging(settings))
        worker = OneRunWorker(
            _options(runtime, early),
            lambda worker_id: take_over(worker_id, ref, claimed_by, executor=EXECUTOR, details=where(os.environ)),
        )
        worker.run()
        if not worker.acquired:
            emit("ray.refused", run_id=ref.run_id, attempt_count=ref.number, claimed_by=claimed_by)
        return 0 if worker.acquired else REFUSED


def _options(runtime: Runtime, early: EarlyChild) -> WorkerOptions:
    child = OneChild(limits=child_limits(runtime.settings), early=early)
    child.name = EXECUTOR
    request = WorkerRequest(queues=(), slots=1, executor=EXECUTOR, name=f"ray job on {os.uname().nodename}")
    return replace(worker_options(runtime, request, {EXECUTOR: child}), quiet_start=QUIET_START)


def where(environment: Mapping[str, str]) -> dict[str, str]:
    """What Ray's environment variables say about where the job runs."""
    names = {"ray_job_id": "RAY_JOB_ID", "ray_node_id": "RAY_NODE_ID"}
    return {name: environment[variable] for name, variable in names.items() if environment.get(variable)}
