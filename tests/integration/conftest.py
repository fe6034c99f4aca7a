"""Fixtures of the integration tests."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.embedded import stop_if_unused
from tests.integration.embedded_support import python
from tests.integration.redis_support import own_redis, redis_url, shared_redis
from tests.integration.wire import Wire

__all__ = ["home", "own_redis", "redis_url", "shared_redis", "spawn"]


@pytest.fixture
def home(run_directory: Path) -> Iterator[Path]:
    """A directory for an embedded server, which is stopped after the test."""
    parent = Path(tempfile.mkdtemp(dir=run_directory))
    parent.chmod(0o711)
    yield parent / "home"
    stop_if_unused(parent / "home")
    shutil.rmtree(parent)


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start Python programs, which are killed after the test."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: str | Path) -> subprocess.Popen[str]:
        started.append(python(code, *arguments))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def wire(database_url: str) -> Iterator[Wire]:
    """A connection to the database that can be cut."""
    wire = Wire(database_url)
    yield wire
    wire.close()
