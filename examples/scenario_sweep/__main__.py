"""Creates the input, starts the job, waits for it, and prints the results.

    python -m examples.scenario_sweep [--sets 1000] [--chunk-size 25] [--paths 2000] [--input FILE] [--workers 1]

Uses the database that HOLDFAST_DATABASE_URL names, or else the embedded server. With `--workers 0`, no workers are
started; start them yourself, with the tasks: `holdfast worker --tasks examples.scenario_sweep.tasks`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from examples.scenario_sweep import tasks
from examples.scenario_sweep.inputs import write_sets

from holdfast import WaitTimeout
from holdfast.jobs import sync


@contextlib.contextmanager
def workers(amount: int) -> Iterator[None]:
    """Start workers, and stop them at the end."""
    command = [sys.executable, "-m", "holdfast", "worker", "--tasks", tasks.__name__]
    environment = {"HOLDFAST_LOG_LEVEL": "warning", **os.environ}
    started = [subprocess.Popen(command, env=environment) for _ in range(amount)]
    try:
        yield
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()


def sweep(path: Path, chunk_size: int, paths: int, timeout: float) -> bool:
    """Run the job and print its results. Returns whether it succeeded."""
    given = {"path": str(path.absolute()), "chunk_size": chunk_size, "paths": paths}
    job = sync.create_job(
        "scenario sweep", [{"entrypoint": tasks.plan, "kwargs": given, "key": "plan"}], timeout=timeout
    )
    while not job.status.final:
        with contextlib.suppress(WaitTimeout):
            sync.wait_for_job(job, timeout=2)
        job = sync.get_job(job)
        print(f"{job.completed_tasks} of {job.total_tasks} tasks", file=sys.stderr)
    print(f"job {job.id}: {job.status}, {job.completed_tasks} of {job.total_tasks} tasks")
    if job.status != "SUCCEEDED":
        for one in job.tasks:
            if one.error_message:
                print(f"  {one.entrypoint}: {one.error_message}")
        return False
    table = sync.get_task(job.tasks[0].result()["table"]).result()
    chart = sync.get_task(table["chart"]).result()
    print(f"table: {table['artifact']['path']} ({table['rows']} rows)")
    print(f"chart: {chart['artifact']['path']} ({chart['dots']} dots)")
    for row in table["best"]:
        print(f"  {row['scenario']:14} {row['region']}  {row['horizon_months']:2} months  {row['objective']:+.3f}")
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=1000, help="how many sets of parameters to generate")
    parser.add_argument("--chunk-size", type=int, default=25, help="number of sets per task")
    parser.add_argument("--paths", type=int, default=2000, help="number of simulated paths per set")
    parser.add_argument("--input", type=Path, help="a Parquet file with your own sets, instead of generated ones")
    parser.add_argument("--workers", type=int, default=1, help="how many workers to start")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds until the job is stopped")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-sweep-") as directory:
        path = options.input
        if path is None:
            path = Path(directory) / "sets.parquet"
            write_sets(path, options.sets)
        with workers(options.workers):
            done = sweep(path, options.chunk_size, options.paths, options.timeout)
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
