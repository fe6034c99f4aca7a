"""Django tasks on a Ray cluster: the nodes set Django up, and what is killed is retried."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from holdfast.raycore.local import started
from tests.django.app import tasks
from tests.django.app.receivers import FILE_VARIABLE
from tests.django.settings import DATABASE_VARIABLE
from tests.django.site_support import worker
from tests.integration.worker_support import eventually
from tests.ray.head import Head
from tests.ray.stage import WAIT_SECONDS

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(900),
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
]

# Long enough to be renewed while Ray starts actors on a busy machine.
LEASE = {"HOLDFAST_LEASE_SECONDS": "10", "HOLDFAST_RENEW_SECONDS": "2", "HOLDFAST_GRACE_SECONDS": "2"}


class Cluster:
    """A Ray head whose actors and jobs find the site in their environment."""

    def __init__(self, site: str, directory: Path) -> None:
        self.directory, self.signals = directory, directory / "signals"
        self.signals.touch()
        environment = {
            **LEASE,
            "HOLDFAST_DATABASE_URL": site,
            "HOLDFAST_TASKS": "holdfast.django.setup",
            "DJANGO_SETTINGS_MODULE": "tests.django.settings",
            DATABASE_VARIABLE: site,
            FILE_VARIABLE: str(self.signals),
        }
        self.head = started(lambda: Head(environment))

    def worker(self, executor: str) -> Any:
        address = self.head.address if executor == "ray_job" else self.head.gcs_address
        given = {**LEASE, **self.head.token, FILE_VARIABLE: str(self.signals), "HOLDFAST_RAY_ADDRESS": address}
        return worker(f"--executor={executor}", "--slots=1", **given)

    def begun(self) -> int:
        """Wait until the first attempt runs. Return the id of its process."""
        path = self.directory / "begun"
        eventually(path.exists, WAIT_SECONDS)
        pid = int(path.read_text().split()[1])
        path.unlink()
        return pid

    def signals_of(self, result: Any) -> list[str]:
        """The signals since the last call, once the run has ended and that was announced."""

        def announced() -> bool:
            result.refresh()
            return bool(result.is_finished) and "finished" in self.signals.read_text()

        eventually(announced, WAIT_SECONDS)
        lines = self.signals.read_text().splitlines()
        self.signals.write_text("")
        return lines


@pytest.fixture
def cluster(site: str, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(site, tmp_path)
    yield cluster
    cluster.head.close()


def test_killed_tasks_and_workers_on_ray_are_recovered_and_each_signal_is_sent_once(cluster: Cluster) -> None:
    """One test, because to start a cluster takes longer than everything else."""
    for executor, killed in (("ray_core", "task"), ("ray_core", "worker"), ("ray_job", "task")):
        result = tasks.hang_once.enqueue(str(cluster.directory))
        with cluster.worker(executor) as first:
            pid = cluster.begun()
            os.kill(pid if killed == "task" else first.pid, signal.SIGKILL)
            if killed == "worker":
                first.wait()
                with cluster.worker(executor) as second:
                    signals = cluster.signals_of(result)
                    second.send_signal(signal.SIGTERM)
                    assert second.wait(WAIT_SECONDS) == 0
            else:
                signals = cluster.signals_of(result)
                first.send_signal(signal.SIGTERM)
                assert first.wait(WAIT_SECONDS) == 0
        case = f"{executor}, {killed} killed"
        assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", 2, 2), case
        assert len(result.errors) == 1, case
        assert signals == [
            "started HoldfastBackend hang_once RUNNING 1",
            "started HoldfastBackend hang_once RUNNING 2",
            "finished HoldfastBackend hang_once SUCCESSFUL 2",
        ], case
