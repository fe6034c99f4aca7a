"""The Ray cluster of the tests: a head on loopback whose parts can be suspended and killed, and nodes can be added."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from holdfast.executors.ray_jobs_api import RayJobs
from holdfast.raycore.guard import end_session, session_of
from holdfast.raycore.local import LocalRay

ROOT = Path(__file__).parents[2]


def path_of_this_python() -> str:
    """A search path on which `python` is the interpreter of the tests."""
    return f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def outer_environment() -> dict[str, str]:
    """The environment of the tests without Holdfast's settings: a node has its own.

    Ray starts many interpreters. Without bytecode, each of them would compile all modules of Ray again.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {"PYTHONPYCACHEPREFIX": str(ROOT / ".pytest_cache" / "bytecode"), **kept}


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """End every process of the session that this process began."""
    end_session(process.pid)
    process.wait()


# Parts of a head that no test needs. Each is an interpreter that imports Ray, which takes half a second of CPU time.
WITHOUT_PARTS = ("--no-monitor", "--include-log-monitor=false")
WITHOUT_SPARE_WORKERS = {"RAY_prestart_worker_first_driver": "0"}


class Head(LocalRay):
    """A head for tests."""

    def __init__(self, environment: Mapping[str, str], like: Head | None = None) -> None:
        inherited = {**outer_environment(), **WITHOUT_SPARE_WORKERS}
        super().__init__({**inherited, **environment, "PYTHONPATH": str(ROOT)}, like, options=WITHOUT_PARTS)
        self.jobs = RayJobs(self.address)

    def second_node(self) -> subprocess.Popen[bytes]:
        """Start another node of this cluster, which has the custom resource `second`."""
        return subprocess.Popen(
            [sys.executable, "-m", "tests.ray.second_node", self.gcs_address, str(self.directory)],
            env=self.environment,
            cwd=ROOT,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )

    def signal_gcs(self, number: signal.Signals) -> None:
        """Suspend the GCS, the part of the head that every node depends on, or resume it."""
        for member in session_of(self.process.pid):
            with suppress(OSError):
                if "gcs_server" in Path(f"/proc/{member}/cmdline").read_text("utf-8"):
                    os.kill(member, number)
