"""A client under load, run by either release: submits until a file exists, and notes what was acknowledged.

python -m tests.upgrade.load NOTES STOP
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections import deque
from pathlib import Path

from holdfast import Client
from holdfast.jobs import sync

# It keeps a backlog of about this many runs.
BACKLOG = 40


def submit(client: Client, n: int) -> list[str]:
    """One kind of submission out of several; returns lines about what was acknowledged."""
    parameters = {"n": n, "fail_times": int(n % 7 == 0)}
    if n % 10 == 3:
        tasks = [
            {"entrypoint": "fleet.work", "kwargs": parameters, "key": "first"},
            {"entrypoint": "fleet.work", "kwargs": {"n": n}, "key": "second", "depends_on": ["first"]},
        ]
        return [f"job {sync.create_job(f'pair {n}', tasks=tasks).id}"]
    if n % 10 == 6:
        handle = sync.map("fleet.square", range(30), chunk_size=10)
        sync.collect(handle, into="fleet.total")
        return [f"job {handle.job_id}"]
    if n % 10 == 9:
        runs = client.submit_many("fleet.work", [{"n": n + part} for part in range(5)])
        return [f"run {run.id}" for run in runs]
    key = f"{os.getpid()}-{n}"
    run = client.submit("fleet.work", parameters, key=key)
    again = client.submit("fleet.work", parameters, key=key)
    return [f"run {run.id}" if run.id == again.id else f"error: {again.id} for the key of {run.id}"]


def main(notes: str, stop: str) -> None:
    with Client() as client, Path(notes).open("a", buffering=1) as file:
        recent: deque[str] = deque()
        for n in itertools.count(1):
            if Path(stop).exists():
                return
            try:
                lines = submit(client, n)
            except Exception as error:  # noqa: BLE001 - the test reads every error
                lines = [f"error: {type(error).__name__}: {error}"]
            file.write("".join(f"{line}\n" for line in lines))
            recent.extend(line.removeprefix("run ") for line in lines if line.startswith("run "))
            while len(recent) > BACKLOG and not Path(stop).exists():
                if client.get(recent[0]).status.final:
                    recent.popleft()
                else:
                    threading.Event().wait(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
