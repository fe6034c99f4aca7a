"""The worker's connection to a Ray cluster, as a driver that makes named actors and kills them."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.execution import ExecutorContext
from holdfast.executors.ray_core import Cluster

NAMESPACE = "holdfast"
LOOPBACK = ("127.", "localhost:", "[::1]")


class RayCluster(Cluster):
    """Connected to the cluster at this address (`host:port` of its GCS). Import and connection take seconds."""

    def __init__(self, address: str, silence: float) -> None:
        if address.startswith(LOOPBACK):
            # Otherwise Ray replaces the address by that of this machine, where a head on loopback does not listen.
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        try:
            import ray
        except ImportError as error:
            raise ConfigurationError("the executor ray_core needs Ray; install holdfast[ray]") from error
        self._ray = ray
        self.address = address
        self._silence = silence
        if not ray.is_initialized():
            ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)

    def make_host(self, name: str, place: ExecutorContext) -> Any:
        from holdfast.raycore import RunHost

        options = {
            "name": name,
            "namespace": NAMESPACE,
            "lifetime": "detached",
            "get_if_exists": True,
            "num_cpus": 0,
            "max_restarts": 0,
            "max_task_retries": 0,
        }
        actor = self._ray.remote(RunHost).options(**options)
        return actor.remote(place.task_modules, asdict(place.limits), place.transactions, self._silence)

    def kill(self, actor: Any) -> None:
        with suppress(Exception):  # it is gone already, or the cluster is
            self._ray.kill(actor, no_restart=True)

    def close(self) -> None:
        self._ray.shutdown()
