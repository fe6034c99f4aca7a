"""Runs and jobs in many states, submitted by either release; prints their ids as JSON.

python -m tests.upgrade.states DIRECTORY
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from holdfast import Client
from holdfast.jobs import sync


def main(directory: Path) -> None:
    opened = str(directory / "opened")
    with Client() as client:
        soon = datetime.now(UTC) + timedelta(seconds=5)
        runs = {
            "ready": client.submit("fleet.work", {"n": 1}, queue="unserved"),
            "timed": client.submit("fleet.work", {"n": 2}, queue="unserved", run_after=soon),
            "retried": client.submit("fleet.later", {"n": 3}, queue="once"),
            "orphaned": client.submit(
                "fleet.gate", {"opened": opened, "started": str(directory / "orphaned")}, queue="doomed"
            ),
            "leased": client.submit("fleet.gate", {"opened": opened, "started": str(directory / "leased")}),
        }
    gate = {"opened": opened, "started": str(directory / "chain")}
    chain = sync.create_job(
        "chain",
        tasks=[
            {"entrypoint": "fleet.work", "kwargs": {"n": 4}, "key": "first"},
            {"entrypoint": "fleet.gate", "kwargs": gate, "key": "second", "depends_on": ["first"]},
            {"entrypoint": "fleet.work", "kwargs": {"n": 5}, "key": "third", "depends_on": ["second"]},
        ],
    )
    mapped = sync.map("fleet.square", range(40), chunk_size=10, opened=opened)
    join = sync.collect(mapped, into="fleet.total")
    ids = {name: str(run.id) for name, run in runs.items()}
    print(json.dumps({**ids, "chain": str(chain.id), "map": str(mapped.job_id), "join": str(join.id)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
