"""Trivial runs on the PostgreSQL of the distribution, compared with the newest version, both with default settings.

    python -m bench.stock_postgres [version] [runs] [rounds]

Each round submits the runs one by one and drains them with one worker, on either server in turn, both through Unix
sockets and without waiting for a disk. What counts is the ratio within a round, in runs per second of both together;
the figure is the median, and the goal is 0.8. On a busy machine single rounds differ by a factor of two: see the range,
and the seconds that each server spent on a core.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import psycopg

from bench.servers import postgres
from holdfast import Client
from holdfast.runtime.settings import Settings
from holdfast.schema import migrate
from holdfast.testing.databases import scratch
from tests.servers import stock_postgres

TASK = "mock"


def server_seconds(server_url: str) -> float:
    """The time on a core of the server and of its processes that have ended."""
    with psycopg.connect(server_url) as connection:
        row = connection.execute("show data_directory").fetchone()
    assert row is not None
    pid = (Path(row[0]) / "postmaster.pid").read_text().split()[0]
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def measure(server_url: str, runs: int) -> tuple[float, float, float]:
    """Seconds to submit the runs and to drain them with one worker, and of the server's time on a core."""
    spent = server_seconds(server_url)
    submitting, draining = timed(server_url, runs)
    return submitting, draining, server_seconds(server_url) - spent


def timed(server_url: str, runs: int) -> tuple[float, float]:
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
        stock_postgres(version, {"max_connections": "100"}, local=True) as old,
        postgres(_open(home), "stock") as new,
    ):
        ratios: list[float] = []
        spent: list[float] = []
        for number in range(rounds):
            found = {}
            for url in (old, new) if number % 2 else (new, old):
                found[url] = measure(url, runs)
            seconds = {url: sum(times[:2]) for url, times in found.items()}
            spent.append(found[new][2] / found[old][2])
            ratios.append(seconds[new] / seconds[old])
            listed = "; ".join(
                f"{name} submit {found[url][0]:.2f} s, drain {found[url][1]:.2f} s, server {found[url][2]:.2f} s"
                for name, url in ((version, old), ("newest", new))
            )
            print(f"round {number + 1}: {listed}; ratio {ratios[-1]:.2f}", flush=True)
    print(
        f"{runs} runs on a stock PostgreSQL {version} compared with the newest: ratio {median(ratios):.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f}, goal 0.8); by the servers' time on a core {median(spent):.2f}"
    )


def _open(home: str) -> Path:
    Path(home).chmod(0o711)
    return Path(home)


if __name__ == "__main__":
    given = sys.argv[1:]
    main(*given[:1], *map(int, given[1:]))
