"""A second node of a Ray cluster on loopback: `python -m tests.ray.second_node GCS_ADDRESS TEMP_DIR`.

`ray start --address` is refused on loopback, so the node is started as in Ray's own tests (`ray.cluster_utils`).
"""

from __future__ import annotations

import signal
import sys

from ray._private.node import Node
from ray._private.parameter import RayParams


def main(gcs_address: str, directory: str) -> None:
    parameters = RayParams(
        gcs_address=gcs_address,
        node_ip_address="127.0.0.1",
        num_cpus=2,
        num_gpus=0,
        resources={"second": 2},
        object_store_memory=80_000_000,
        min_worker_port=0,
        max_worker_port=0,
        node_manager_port=0,
        include_log_monitor=False,
        temp_dir=directory,
    )
    parameters.dashboard_agent_listen_port = None
    Node(parameters, head=False, shutdown_at_exit=True, spawn_reaper=False)
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
