"""Ordinary `rq worker` processes for tests, and access to the messages in Redis."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis

from holdfast import Client, Run
from holdfast.processes.family import alive, family
from holdfast.runtime.settings import Settings
from tests.integration.worker_support import eventually

TASKS = "tests.integration.rq_tasks"
ROOT = Path(__file__).parents[2]
ORDINARY = ("--serializer", "rq.serializers.JSONSerializer")
GUARDED = ("--job-class", "holdfast.rq.RunJob")


@dataclass
class RqStage:
    """A database, a Redis, a client that rings, and workers of RQ."""

    database_url: str
    redis_url: str
    directory: Path
    lease_seconds: float = 6.0
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.settings = Settings(
            database_url=self.database_url,
            redis_url=self.redis_url,
            doorbell="rq",
            tasks=(TASKS,),
            artifacts=str(self.directory / "artifacts"),
            lease_seconds=self.lease_seconds,
            renew_seconds=self.lease_seconds / 6,
            ring_seconds=1.0,
        )
        self.client = Client(self.settings)
        self.redis: Any = redis.Redis.from_url(self.redis_url)

    def close(self) -> None:
        for process in self.started:
            self.kill(family(process.pid))
            process.wait()
        self.client.close()
        self.redis.close()

    def kill(self, pids: Sequence[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        eventually(lambda: not alive(pids))

    def environment(self) -> dict[str, str]:
        settings = self.settings
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        return kept | {
            "HOLDFAST_DATABASE_URL": self.database_url,
            "HOLDFAST_REDIS_URL": self.redis_url,
            "HOLDFAST_DOORBELL": "rq",
            "HOLDFAST_TASKS": TASKS,
            "HOLDFAST_ARTIFACTS": settings.artifacts,
            "HOLDFAST_LEASE_SECONDS": str(settings.lease_seconds),
            "HOLDFAST_RENEW_SECONDS": str(settings.renew_seconds),
            "HOLDFAST_RING_SECONDS": str(settings.ring_seconds),
            "PYTHONPATH": str(ROOT),
        }

    def enter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Give this process the environment of the workers."""
        for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
            monkeypatch.delenv(name)
        for name, value in self.environment().items():
            monkeypatch.setenv(name, value)

    def rq_worker(self, *options: str) -> subprocess.Popen[bytes]:
        """Start an RQ worker and return when it waits for messages."""
        command = [sys.executable, "-m", "rq.cli", "worker", "--url", self.redis_url, *(options or ORDINARY), "default"]
        log = self.directory / f"rq-{len(self.started)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, env=self.environment(), cwd=self.directory, stdout=out, stderr=subprocess.STDOUT
            )
        self.started.append(process)
        eventually(lambda: b"Listening on" in log.read_bytes())
        return process

    def submit(self, task: str, **parameters: Any) -> Run:
        return self.client.submit(task, parameters)

    def said(self, path: Path) -> list[str]:
        return path.read_text().splitlines() if path.exists() else []

    def horse_of(self, run: Run) -> int:
        """The process that holds the run's lease."""

        def look() -> int | None:
            owner = run.refresh().lease_owner
            pids = [worker.pid for worker in self.client.workers() if worker.id == owner]
            return pids[0] if pids else None

        found = eventually(look)
        assert found is not None
        return found

    def message(self, job_id: str) -> list[Any]:
        """Return the content of a message."""
        data = self.redis.hget(f"rq:job:{job_id}", "data")
        found: list[Any] = json.loads(zlib.decompress(data))
        return found


def ended(run: Run) -> list[tuple[int, str, str | None]]:
    """The attempts of a run: number, status and reason."""
    return [(one.number, one.status, one.reason) for one in run.attempts()]
