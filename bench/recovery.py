"""How long a run waits after its worker was killed, its child was killed, or its worker was frozen past the lease.

    python -m bench.recovery [--rounds 5] [--lease 5]

Two workers as anyone would start them share a Postgres of their own. Prints the seconds from the signal to the claim.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.processes import Crew, running
from holdfast import Client
from holdfast.embedded import ensure_running
from holdfast.processes.family import children, family
from holdfast.runtime.settings import Settings
from holdfast.schema.migrate import upgrade

DEADLINE = 120.0


@dataclass
class Scene:
    """A client, and a way to start a worker."""

    client: Client
    environment: dict[str, str]
    log: Path

    def worker(self) -> Crew:
        return Crew([[sys.executable, "-m", "holdfast", "worker", "--slots", "1"]], self.environment, self.log)

    def start_run(self, seconds: float) -> Any:
        run = self.client.submit("mock", {"seconds": seconds})
        until(lambda: self.client.attempts(run))
        return run


def until(look: Callable[[], Any]) -> Any:
    end = time.monotonic() + DEADLINE
    while not (found := look()):
        if time.monotonic() > end:
            raise TimeoutError(f"nothing within {DEADLINE} s")
        time.sleep(0.01)
    return found


@contextmanager
def scene(lease: float) -> Iterator[Scene]:
    with tempfile.TemporaryDirectory(prefix="holdfast-recovery-") as directory:
        Path(directory).chmod(0o711)
        with ensure_running(Path(directory) / "home") as postgres:
            upgrade(postgres.url)
            artifacts = str(Path(directory) / "artifacts")
            outside = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
            environment = outside | {
                "HOLDFAST_DATABASE_URL": postgres.url,
                "HOLDFAST_LEASE_SECONDS": str(lease),
                "HOLDFAST_ARTIFACTS": artifacts,
            }
            with Client(Settings(database_url=postgres.url, artifacts=artifacts)) as client:
                yield Scene(client, environment, Path(directory) / "worker.log")


def measured(at: Scene, strike: Callable[[Crew], None], seconds: float) -> tuple[float, Any]:
    """Start a run on one worker, have another one wait, strike the first; the seconds until the second claim."""
    with running(at.worker()) as first:
        run = at.start_run(seconds)
        with running(at.worker()):
            until(lambda: sum(worker.status in ("active", "idle") for worker in at.client.workers()) >= 2)
            struck = time.time()
            strike(first)
            again = until(lambda: [a for a in at.client.attempts(run) if a.number == 2])
            ended = at.client.wait(run, DEADLINE)
            for pid in first.pids():
                os.kill(pid, signal.SIGCONT)
            if strike is freeze:
                until(lambda: any(event.type == "FENCED" for event in at.client.events(run)))
            assert (ended.status, ended.attempt_count) == ("SUCCEEDED", 2), ended
            return again[0].claimed_at.timestamp() - struck, [event.type for event in at.client.events(run)]


def kill_tree(crew: Crew) -> None:
    for pid in crew.pids():
        os.kill(pid, signal.SIGKILL)


def kill_child(crew: Crew) -> None:
    for pid in children(crew.processes[0].pid):
        for member in family(pid):
            os.kill(member, signal.SIGKILL)


def freeze(crew: Crew) -> None:
    for pid in crew.pids():
        os.kill(pid, signal.SIGSTOP)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lease", type=float, default=5.0)
    asked = parser.parse_args()
    strikes = [
        ("kill -9 of the whole worker", kill_tree, asked.lease + 6),
        ("kill -9 of the child", kill_child, 2.0),
        ("SIGSTOP past the lease, SIGCONT", freeze, asked.lease + 6),
    ]
    with scene(asked.lease) as at:
        for name, strike, goal in strikes:
            found = [measured(at, strike, asked.lease) for _ in range(asked.rounds)]
            seconds = [took for took, _ in found]
            print(
                f"{name}: claimed again after {median(seconds):.2f} s (worst of {len(found)}: {max(seconds):.2f} s, "
                f"goal {goal:g} s); {' '.join(found[-1][1])}",
                flush=True,
            )


if __name__ == "__main__":
    main()
