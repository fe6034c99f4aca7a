"""The entrypoint of a Ray job: a worker of one run.

    python -m holdfast.rayjob RUN_ID NUMBER WORKER_ID

It takes the attempt over from the worker that submitted the job, renews its lease, executes it in a child process, and
settles it. Everything but these ids comes from the environment of the Ray node and from the database: what is passed
through Ray's job API can be read by everyone who may list jobs. A job that starts late, twice, or after its attempt was
lost is refused, and the refusal is recorded as an event of the run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace

from holdfast import ops
from holdfast.assembly.one_run import OneChild, OneRunWorker
from holdfast.assembly.worker import WorkerRequest, child_limits, start_logging, worker_options
from holdfast.domain.values import AttemptRef
from holdfast.observe import emit
from holdfast.runtime.runtime import Runtime
from holdfast.worker import WorkerOptions

EXECUTOR = "ray_job"
REFUSED = 3  # the exit code of a job whose attempt was not to be had


def execute(ref: AttemptRef, claimed_by: str) -> int:
    """Take the attempt over, execute and settle it. Return the exit code of the job."""
    with Runtime(purpose="worker") as runtime, ExitStack() as stack:
        stack.callback(start_logging(runtime.settings))
        worker = OneRunWorker(
            _options(runtime),
            lambda worker_id: ops.take_over(worker_id, ref, claimed_by, executor=EXECUTOR, details=where(os.environ)),
        )
        worker.run()
        if not worker.acquired:
            emit("ray.refused", run_id=ref.run_id, attempt_count=ref.number, claimed_by=claimed_by)
        return 0 if worker.acquired else REFUSED


def _options(runtime: Runtime) -> WorkerOptions:
    options = worker_options(runtime, WorkerRequest(queues=(), slots=1, name=f"ray job on {os.uname().nodename}"))
    child = OneChild(1, limits=child_limits(runtime.settings))
    child.name = EXECUTOR
    inline = options.executors["inline"]
    return replace(options, executors={"inline": inline, EXECUTOR: child}, default_executor=EXECUTOR)


def where(environment: Mapping[str, str]) -> dict[str, str]:
    """What Ray lets a job know about where it runs."""
    names = {"ray_job_id": "RAY_JOB_ID", "ray_node_id": "RAY_NODE_ID"}
    return {name: environment[variable] for name, variable in names.items() if environment.get(variable)}
