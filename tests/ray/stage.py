"""Workers that submit to Ray, as processes of the test, and a client to read the results."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast import Client, Run
from holdfast.domain.ids import new_id
from holdfast.processes.family import alive, family
from holdfast.runtime.settings import Settings
from tests.integration.worker_support import eventually
from tests.ray.head import ROOT, Head, outer_environment
from tests.ray.stand_in import StandIn

WAIT_SECONDS = 240.0


class RayStage:
    """A client, a separate queue, and workers whose runs the nodes of a Ray cluster may execute.

    `node` are the settings in the environment of the nodes, which workers and client share.
    """

    def __init__(
        self, head: Head | StandIn | None, node: Mapping[str, str], directory: Path, executor: str = ""
    ) -> None:
        self.head = head
        self.node = node
        self.directory = directory
        self.executor = executor
        self.queue = f"queue-{new_id()}"
        self.database_url = node["HOLDFAST_DATABASE_URL"]
        self.client = Client(
            Settings(
                database_url=self.database_url,
                tasks=tuple(node["HOLDFAST_TASKS"].split(",")),
                artifacts=node["HOLDFAST_ARTIFACTS"],
            )
        )
        self.processes: list[subprocess.Popen[bytes]] = []

    def close(self) -> None:
        for process in self.processes:
            self.kill(process)
        self.client.close()

    def file(self, name: str) -> Path:
        return self.directory / name

    def lines(self, name: str) -> list[str]:
        path = self.file(name)
        return path.read_text("utf-8").splitlines() if path.exists() else []

    def submit(self, task: str, **parameters: Any) -> Run:
        return self.client.submit(task, parameters, queue=self.queue)

    def worker(self, executor: str, slots: int = 2, **environment: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "holdfast", "worker", "--executor", executor),
                *("--queues", self.queue, "--slots", str(slots)),
            ],
            env={**outer_environment(), **self.node, **self._address(executor), **environment},
            cwd=ROOT,
        )
        self.processes.append(process)
        return process

    def _address(self, executor: str) -> dict[str, str]:
        if self.head is None:
            return {}
        return {"HOLDFAST_RAY_ADDRESS": self.head.address if executor == "ray_job" else self.head.gcs_address}

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a worker and everything that it started on this machine."""
        members = family(process.pid)
        for member in members:
            with suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        process.wait()
        eventually(lambda: not alive(members))

    def ended(self, run: Run, within: float = WAIT_SECONDS) -> str:
        """Wait until the run has ended. Return its status."""
        return str(eventually(lambda: run.refresh().status.final and run.record.status, within))

    def story(self, run: Run) -> list[str]:
        return [event.type for event in run.events()]
