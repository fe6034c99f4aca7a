"""The samples from the document that the jobs API is based on run unchanged except for their imports, and so does every
block of our own page about jobs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import task
from holdfast.client import shared
from holdfast.domain.errors import ConfigurationError
from holdfast.jobs import sync
from holdfast.runtime.settings import load
from tests.integration.cli_support import FOREIGN
from tests.integration.jobs_support import disagreements
from tests.integration.source_samples import ENVIRONMENT, LOAD, MAP, Object, defined, renamed
from tests.integration.worker_support import ROOT, Stage, eventually

PAGE = ROOT / "docs" / "jobs.md"

CREATE = """
from aaiclick.orchestration import create_job

# Create job with initial task
job = await create_job(
    name="data_processing_pipeline",
    tasks=[
        {
            "entrypoint": "myapp.processors.load_and_process_data",
            "kwargs": {"source": "dataset_v1"}
        }
    ]
)
"""

JOBS = """
from aaiclick.orchestration import (
    create_job,
    get_job,
    list_jobs,
    cancel_job
)

# Create job
job = await create_job(name="pipeline", tasks=TASKS)
job_id = job.id

# Get job status
job = await get_job(job_id)
print(f"Status: {job.status}, Progress: {job.completed_tasks}/{job.total_tasks}")

# List jobs
jobs = await list_jobs(status="running")

# Cancel job
await cancel_job(job_id)
"""

TASKS = """
from aaiclick.orchestration import (
    add_task_to_job,
    get_task,
    retry_failed_tasks
)

# Add task to existing job
await add_task_to_job(
    job_id=job.id,
    entrypoint="myapp.process",
    kwargs={"data": "tbl_xyz"}
)

# Get task details
task = await get_task(task_id)

# Retry failed tasks
await retry_failed_tasks(job_id)
"""

WORKERS = """
from aaiclick.orchestration import (
    register_worker,
    worker_heartbeat,
    deregister_worker,
    list_workers
)

# Register worker
worker = await register_worker(hostname="worker-01", pid=12345)

# Heartbeat (periodic)
await worker_heartbeat(worker.id)

# Deregister
await deregister_worker(worker.id)

# List active workers
workers = await list_workers(status="active")
"""


async def performed(sample: str, **names: Any) -> dict[str, Any]:
    """Return the variables after running a sample."""
    body = textwrap.indent(renamed(sample), "    ")
    exec(compile(f"async def main():\n{body}\n    return locals()", "sample", "exec", dont_inherit=True), names)
    found: dict[str, Any] = await names["main"]()
    return found


@task("samples.load", executor="inline")
async def load_sample(source: str) -> None:
    await defined(LOAD.replace("myapp.processors.validate_data", "samples.validate"), "load_and_process_data")(source)


@task("samples.validate", executor="inline")
async def validate(input_obj: str) -> str:
    return input_obj


@task("samples.map", executor="inline")
async def map_sample(rows: int) -> dict[str, Any]:
    found: dict[str, Any] = await defined(MAP, "map")("samples.chunk", Object("tbl_abc", rows))
    return found


@task("samples.chunk", executor="inline")
def chunk(table_id: str, offset: int, limit: int) -> list[Any]:
    return [table_id, offset, limit]


@task("samples.hold", executor="inline")
async def hold() -> None:
    import asyncio

    await asyncio.Event().wait()


@pytest.fixture
def stage(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.delenv("HOLDFAST_TEST_RUN_DIRECTORY", raising=False)
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database_url)
    stage = Stage(database_url, tmp_path, tasks=())
    with stage.worker("inline", slots=4):
        yield stage
    stage.close()
    shared.close()
    with psycopg.connect(database_url) as connection:
        assert disagreements(connection) == []


async def test_a_job_whose_first_task_adds_another(stage: Stage) -> None:
    sample = CREATE.replace("myapp.processors.load_and_process_data", "samples.load")
    job = sync.wait_for_job((await performed(sample))["job"], 30)
    assert (job.status, job.completed_tasks, job.total_tasks) == ("SUCCEEDED", 2, 2)
    assert job.tasks[1].result() == "tbl_dataset_v1"


async def test_the_map_of_the_source_is_an_ordinary_function_over_this_api(stage: Stage) -> None:
    job = sync.create_job("map", [{"entrypoint": "samples.map", "kwargs": {"rows": 25_000}}])
    job = sync.wait_for_job(job, 30)
    first, *chunks = job.tasks
    assert first.result() == {"job_id": job.id, "chunks": 3}
    assert sorted(one.result() for one in chunks) == [["tbl_abc", n, 10_000] for n in (0, 10_000, 20_000)]


async def test_samples_that_manage_jobs_and_tasks_work(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    found = await performed(JOBS, TASKS=[{"entrypoint": "samples.hold"}])
    assert re.fullmatch(r"Status: (PENDING|RUNNING), Progress: 0/1\n", capsys.readouterr().out)
    assert sync.wait_for_job(found["job_id"], 30).status == "CANCELLED"

    # The lines about tasks need a job that has failed and one that has not ended.
    job = sync.create_job("open", [{"entrypoint": "samples.hold"}])
    sample = TASKS.replace("myapp.process", "samples.validate").replace('"data"', '"input_obj"')
    found = await performed(sample, job=job, task_id=job.tasks[0].id, job_id=found["job_id"])
    assert found["task"].entrypoint == "samples.hold"
    assert sync.get_job(job).total_tasks == 2
    for one in (job.id, found["task"].job_id, *(other.id for other in sync.list_jobs())):
        if not sync.get_job(one).status.final:
            sync.cancel_job(one)
        sync.wait_for_job(one, 30)


async def test_samples_that_manage_workers_and_check_health_work(stage: Stage) -> None:
    eventually(lambda: sync.list_workers(status="active"))
    found = await performed(WORKERS)
    assert found["worker"].id not in {one.id for one in found["workers"]}
    assert len(found["workers"]) == 1
    assert all(sync.health_check()["checks"].values())


def test_settings_of_the_source_have_the_same_meaning(tmp_path: Path) -> None:
    lines = (line.partition("#")[0].strip() for line in ENVIRONMENT.splitlines())
    given = dict(line.split("=", 1) for line in lines if line)
    with pytest.raises(ConfigurationError, match="HOLDFAST_LEASE_SECONDS"):
        load(given | {"HOLDFAST_LEASE_SECONDS": "60"}, tmp_path)  # a heartbeat every 30 s is too rare for that
    settings = load(given, tmp_path)
    assert settings.database_url == "postgresql://aaiclick:secret@localhost:5432/aaiclick_orchestration"
    assert (settings.renew_seconds, settings.task_timeout_seconds) == (30.0, 3600.0)
    assert (settings.max_attempts, settings.job_timeout_seconds) == (4, 86400.0)


def test_every_block_of_the_page_runs(tmp_path: Path, database_url: str) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra: data")
    module, *blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "flow.py").write_text(module)
    (tmp_path / "page.py").write_text("\n".join(blocks))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    environment = kept | {"HOLDFAST_DATABASE_URL": database_url, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "holdfast", "worker", "--tasks", "flow", "--slots", "4"]
    worker = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    try:
        output = subprocess.run(
            [sys.executable, "page.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100
        )
        assert output.returncode == 0, output.stdout + output.stderr
        eventually(lambda: not (tmp_path / "scratch.tmp").exists())
    finally:
        worker.terminate()
        worker.wait(timeout=30)
