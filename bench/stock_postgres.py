"""Trivial runs on a PostgreSQL of the distribution, as it comes, beside the newest one with its stock settings.

    python -m bench.stock_postgres [version] [runs] [rounds]

Each round submits the runs one by one and drains them with one worker, on either server in turn. What counts is the
ratio within a round, in runs per second of both together; the figure is the median. The goal is 0.8.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bench.servers import postgres
from holdfast import Client, migrate
from holdfast.settings import Settings
from holdfast.testing.databases import scratch
from holdfast.testing.servers import stock_postgres

TASK = "mock"


def measure(server_url: str, runs: int) -> tuple[float, float]:
    """Seconds to submit the runs, and to drain them with one worker."""
    with scratch(server_url) as url:
        migrate.upgrade(url)
        with Client(Settings(database_url=url)) as client:
            began = time.monotonic()
            for number in range(runs):
                client.submit(TASK, {"seconds": 0, "steps": 1, "payload": number})
            submitted = time.monotonic()
            environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
            command = [sys.executable, "-m", "holdfast", "worker", "--executor", "inline", "--until-empty"]
            subprocess.run(
                command,
                env=environment | {"HOLDFAST_DATABASE_URL": url, "HOLDFAST_LOG_LEVEL": "error"},
                check=True,
                timeout=600,
            )
            drained = time.monotonic()
            left = [run for run in client.list(limit=200) if not run.status.final]
            assert not left, f"{len(left)} runs have not ended"
    return submitted - began, drained - submitted


def main(version: str = "15", runs: int = 3000, rounds: int = 3) -> None:
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").exists() else None) as home,
        stock_postgres(version, {"max_connections": "100"}) as old,
        postgres(_open(home), "stock") as new,
    ):
        ratios = []
        for number in range(rounds):
            found = {}
            for url in (old, new) if number % 2 else (new, old):
                found[url] = measure(url, runs)
            seconds = {url: sum(times) for url, times in found.items()}
            ratios.append(seconds[new] / seconds[old])
            told = "; ".join(
                f"{name} submit {found[url][0]:.2f} s, drain {found[url][1]:.2f} s"
                for name, url in ((version, old), ("newest", new))
            )
            print(f"round {number + 1}: {told}; ratio {ratios[-1]:.2f}", flush=True)
    print(
        f"{runs} runs on a stock PostgreSQL {version} beside the newest: ratio {median(ratios):.2f} (median, goal 0.8)"
    )


def _open(home: str) -> Path:
    Path(home).chmod(0o711)
    return Path(home)


if __name__ == "__main__":
    given = sys.argv[1:]
    main(*given[:1], *map(int, given[1:]))
