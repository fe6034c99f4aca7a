"""The executors on Ray, built from the settings."""

from __future__ import annotations

import os
import socket
from functools import partial
from importlib.util import find_spec

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.execution import Executor
from holdfast.executors.ray_addresses import gcs, job_server
from holdfast.runtime.settings import Settings

RAY_JOB_SLOTS = 8
"""The default number of concurrent Ray jobs of a worker."""


def open_ray_job(settings: Settings, slots: int | None, cluster: str | None) -> Executor:
    """The executor ray_job. It does not need the Ray package: jobs are submitted over HTTP."""
    from holdfast.executors.ray_job import RayJobExecutor
    from holdfast.executors.ray_jobs_api import RayJobs

    try:
        address = job_server(settings.ray_addresses(cluster))
    except ValueError as error:
        raise ConfigurationError(f"the executor ray_job needs a Ray cluster: {error}") from error
    return RayJobExecutor(slots or RAY_JOB_SLOTS, RayJobs(address), settings.ray_environments or {})


def open_ray_core(settings: Settings, slots: int, cluster: str | None) -> Executor:
    from holdfast.executors.ray_core import RayCoreExecutor
    from holdfast.executors.ray_driver import connected

    require_ray("ray_core")
    try:
        address = gcs(settings.ray_addresses(cluster))
    except ValueError as error:
        raise ConfigurationError(f"the executor ray_core needs a Ray cluster: {error}") from error
    pool = f"holdfast-{socket.gethostname()}-{os.getpid()}"
    connect = partial(connected, address, settings.lease_seconds, settings.ray_environments or {})
    return RayCoreExecutor(slots, pool, connect)


def require_ray(executor: str) -> None:
    """Raise ConfigurationError, with one line, unless Ray is installed."""
    if find_spec("ray") is None:
        raise ConfigurationError(f"the executor {executor} needs Ray: pip install 'holdfast[ray]'")
