"""A Ray of one's own on this machine: one head on loopback, with a token, which ends with its process."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import IO, TypeVar
from urllib.request import Request, urlopen

from holdfast.domain.errors import ConfigurationError, HoldfastError
from holdfast.raycore.guard import end_session

STARTS_WITHIN = 300.0
TRIES = 5
NODE = re.compile(r"Setting node ID node_id=([0-9a-f]+)")
PORT_FILES = {"dashboard-agent-grpc-port": "metrics_agent_port"}
AGENT_PORTS = (
    "dashboard-agent-listen-port",
    "dashboard-agent-grpc-port",
    "runtime-env-agent-port",
    "metrics-export-port",
    "ray-client-server-port",
)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class LocalRay:
    """`ray start --head --block`. `environment` is that of its jobs and actors, without what they need to find it.

    The directory is short because the path of a socket may have at most 107 bytes. With `like`, the head replaces one
    that has ended, with the same addresses and token. `options` are additional options of `ray start`.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        like: LocalRay | None = None,
        cpus: int = 4,
        options: Sequence[str] = (),
    ) -> None:
        if find_spec("ray") is None:
            raise ConfigurationError("Ray is not installed: pip install 'holdfast[ray]'")
        self.directory = Path(tempfile.mkdtemp(prefix="hfr", dir="/tmp"))
        self.gcs_port: int = like.gcs_port if like else free_port()
        self.port: int = like.port if like else free_port()
        self.token: dict[str, str] = like.token if like else {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token_hex(24)}
        self.address = f"http://127.0.0.1:{self.port}"
        self.gcs_address = f"127.0.0.1:{self.gcs_port}"
        self.environment = {**environment, **self._own_environment(environment)}
        self._ports = {name: free_port() for name in AGENT_PORTS}
        self.log: IO[bytes] = (self.directory / "head.log").open("wb")
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "holdfast.raycore.guard"),
                *(sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", "--head", "--block"),
                *("--node-ip-address=127.0.0.1", f"--port={self.gcs_port}", "--dashboard-host=127.0.0.1"),
                *(f"--dashboard-port={self.port}", f"--num-cpus={cpus}"),
                *(f"--{name}={port}" for name, port in self._ports.items()),
                *("--object-store-memory=100000000", f"--temp-dir={self.directory}", "--disable-usage-stats"),
                *options,
            ],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )

    @property
    def settings(self) -> dict[str, str]:
        """What a worker needs in its environment to use this Ray."""
        return {"HOLDFAST_RAY_ADDRESS": f"{self.address},{self.gcs_address}", **self.token}

    def _own_environment(self, given: Mapping[str, str]) -> dict[str, str]:
        seconds = f"{STARTS_WITHIN:.0f}"
        return {
            **self.token,
            "RAY_USAGE_STATS_ENABLED": "0",
            # Without this, Ray replaces 127.0.0.1 by the external address and listens on all interfaces.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            # A busy machine is no failure: by default the parts of a head give each other up after 30 or 60 s.
            "RAY_DASHBOARD_STARTUP_TIMEOUT_S": seconds,
            "RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT": seconds,
            "RAY_raylet_start_wait_time_s": seconds,
            "RAY_agent_register_timeout_ms": f"{STARTS_WITHIN * 1000:.0f}",
            "RAY_worker_register_timeout_seconds": seconds,
            # Jobs call `python`, and import the modules of tasks from where this was started.
            "PATH": f"{Path(sys.executable).parent}:{given.get('PATH', '')}",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(Path.cwd()), given.get("PYTHONPATH")])),
        }

    def wait(self) -> None:
        """Return when it takes jobs. Raise HoldfastError if it does not."""
        ends = time.monotonic() + STARTS_WITHIN
        while self.process.poll() is None and time.monotonic() < ends and not self._raylet_failed():
            if self._answers():
                return
            self._announce_ports()
            time.sleep(0.1)
        raise HoldfastError(f"Ray did not start: {self.said()}")

    def _answers(self) -> bool:
        request = Request(  # noqa: S310 - the address is our own
            f"{self.address}/api/jobs/", headers={"Authorization": f"Bearer {self.token['RAY_AUTH_TOKEN']}"}
        )
        with suppress(OSError), urlopen(request, timeout=10) as answer:  # noqa: S310
            return bool(answer.status == 200) and self._agent_registered()
        return False

    def _agent_registered(self) -> bool:
        """Jobs are started by the agent of the node, which comes last."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._ports["dashboard-agent-listen-port"]), 1):
            return True
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

    def kill(self) -> None:
        end_session(self.process.pid)
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        self.log.close()
        shutil.rmtree(self.directory, ignore_errors=True)


T = TypeVar("T", bound=LocalRay)


def started(make: Callable[[], T]) -> T:
    """A Ray that takes jobs. On a busy machine its parts may give each other up, and then it is started again."""
    for _ in range(TRIES - 1):
        with suppress(HoldfastError):
            return _waited_for(make())
    return _waited_for(make())


def _waited_for(ray: T) -> T:
    try:
        ray.wait()
    except BaseException:
        ray.close()
        raise
    return ray
