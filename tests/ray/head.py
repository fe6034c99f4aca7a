"""A Ray of its own for tests: one head on loopback, with a token, ended by its process ids."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import IO

from holdfast.executors.ray_jobs_api import RayAway, RayJobs, RayRefused

STARTS_WITHIN = 300.0
NODE = re.compile(r"Setting node ID node_id=([0-9a-f]+)")
PORT_FILES = {"dashboard-agent-grpc-port": "metrics_agent_port"}
AGENT_PORTS = (
    "dashboard-agent-listen-port",
    "dashboard-agent-grpc-port",
    "runtime-env-agent-port",
    "metrics-export-port",
    "ray-client-server-port",
)
ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def path_of_this_python() -> str:
    """A search path on which `python` is the interpreter of the tests."""
    return f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def outer_environment() -> dict[str, str]:
    """The environment of the tests without Holdfast's settings: a node has its own."""
    return {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}


class Head:
    """`ray start --head --block` in a session of its own, so that exactly its processes can be ended.

    `ray stop` would end every Ray on the machine. The directory is short because a socket's path has 107 bytes at most.
    """

    def __init__(self, environment: Mapping[str, str], like: Head | None = None) -> None:
        """A new head; with `like`, in place of one that is gone, at its addresses and with its token."""
        self.settings = environment
        self.directory = Path(tempfile.mkdtemp(prefix="hfr", dir="/tmp"))
        self.gcs_port, self.port = (like.gcs_port, like.port) if like else (free_port(), free_port())
        self.token = like.token if like else {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token_hex(24)}
        self.environment = {
            **self.token,
            "RAY_USAGE_STATS_ENABLED": "0",
            # Without this, Ray replaces 127.0.0.1 by the external address and listens on all interfaces.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            # A busy machine is no failure: by default the parts of a head give each other up after 30 or 60 s.
            "RAY_DASHBOARD_STARTUP_TIMEOUT_S": f"{STARTS_WITHIN:.0f}",
            "RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT": f"{STARTS_WITHIN:.0f}",
            "RAY_raylet_start_wait_time_s": f"{STARTS_WITHIN:.0f}",
            "RAY_agent_register_timeout_ms": f"{STARTS_WITHIN * 1000:.0f}",
            "RAY_worker_register_timeout_seconds": f"{STARTS_WITHIN:.0f}",
            "PATH": path_of_this_python(),
            "PYTHONPATH": str(ROOT),
        }
        self.address = f"http://127.0.0.1:{self.port}"
        self.gcs_address = f"127.0.0.1:{self.gcs_port}"
        self.jobs = RayJobs(self.address)
        self._ports = {name: free_port() for name in AGENT_PORTS}
        self._log: IO[bytes] = (self.directory / "head.log").open("wb")
        self.process = subprocess.Popen(
            [
                *(str(Path(sys.executable).parent / "ray"), "start", "--head", "--block"),
                *("--node-ip-address=127.0.0.1", f"--port={self.gcs_port}", "--dashboard-host=127.0.0.1"),
                *(f"--dashboard-port={self.port}", "--num-cpus=4"),
                *(f"--{name}={port}" for name, port in self._ports.items()),
                *("--object-store-memory=100000000", f"--temp-dir={self.directory}", "--disable-usage-stats"),
            ],
            env={**outer_environment(), **self.environment, **environment},
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def answers(self) -> bool:
        """Wait until the head takes jobs; False if it does not. The token has to be in this process's environment."""
        ends = time.monotonic() + STARTS_WITHIN
        while self.process.poll() is None and time.monotonic() < ends and not self._raylet_failed():
            with suppress(RayAway, RayRefused):
                self.jobs.submit("holdfast-first", "true", {})
                return True
            self._announce_ports()
            time.sleep(0.1)
        return False

    def _announce_ports(self) -> None:
        """Write the files in which agents announce their ports, which are known here, before the agents do.

        The raylet gives up if they are not there 15 s after its start, and no setting of Ray changes that.
        """
        session = self.directory / "session_latest"
        with suppress(OSError):
            node = NODE.search((session / "logs" / "raylet.out").read_text("utf-8", "replace"))
            for name, port in self._ports.items():
                path = session / f"{PORT_FILES.get(name, name.replace('-', '_'))}_{node[1] if node else ''}"
                if node and not path.exists():
                    path.write_text(str(port), "utf-8")

    def _raylet_failed(self) -> bool:
        path = self.directory / "session_latest" / "logs" / "raylet.err"
        return path.exists() and "Check failed" in path.read_text("utf-8", "replace")

    def said(self) -> str:
        return (self.directory / "head.log").read_text("utf-8", "replace")[-2000:]

    def second_node(self) -> subprocess.Popen[bytes]:
        """Start another node of this cluster, which has the custom resource `second`."""
        return subprocess.Popen(
            [sys.executable, "-m", "tests.ray.second_node", self.gcs_address, str(self.directory)],
            env={**outer_environment(), **self.environment, **self.settings},
            cwd=ROOT,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def signal_gcs(self, number: signal.Signals) -> None:
        """Freeze the GCS, the part of the head that every node depends on, or let it go on."""
        for member in session_of(self.process.pid):
            with suppress(OSError):
                if "gcs_server" in Path(f"/proc/{member}/cmdline").read_text("utf-8"):
                    os.kill(member, number)

    def kill(self) -> None:
        kill_session(self.process)

    def close(self) -> None:
        self.kill()
        self._log.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """End every process of the session that this process began."""
    for _ in range(50):
        members = session_of(process.pid)
        for member in members:
            with suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        if not members:
            break
        time.sleep(0.1)
    process.wait()


def session_of(leader: int) -> list[int]:
    """The processes of the session that this process began."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                fields = (entry / "stat").read_text("utf-8").rpartition(")")[2].split()
                if int(fields[3]) == leader and fields[0] != "Z":
                    found.append(int(entry.name))
    return found
