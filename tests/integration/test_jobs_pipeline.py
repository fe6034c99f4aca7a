"""The scenario sweep of `examples/`, small: from Parquet through chunks to one table and one chart."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import psycopg
import pytest
from examples.scenario_sweep.chart import scatter
from examples.scenario_sweep.inputs import write_sets

from holdfast import Client, Settings
from holdfast.jobs import Jobs
from holdfast.jobs.datasets import ParquetFiles
from tests.integration.cli_support import FOREIGN
from tests.integration.jobs_support import disagreements
from tests.integration.worker_support import ROOT

pq = pytest.importorskip("pyarrow.parquet", reason="needs the extra: data")
pytest.importorskip("numpy", reason="needs the extra: models")

SETS, CHUNK = 40, 15
SVG = "{http://www.w3.org/2000/svg}"


def run(directory: Path, database_url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    settings = {"HOLDFAST_DATABASE_URL": database_url, "HOLDFAST_ARTIFACTS": str(directory / "artifacts")}
    command = [sys.executable, "-m", "examples.scenario_sweep", "--chunk-size", str(CHUNK), "--paths", "200"]
    return subprocess.run(
        [*command, *arguments], cwd=ROOT, env=kept | settings, capture_output=True, text=True, timeout=100
    )


def whole(artifact: dict[str, Any]) -> Path:
    """Return the path of an artifact, if it is unchanged since its run."""
    path = Path(artifact["path"])
    assert hashlib.sha256(path.read_bytes()).hexdigest() == artifact["sha256"]
    return path


def test_sweep_runs_from_the_command_line(tmp_path: Path, database_url: str) -> None:
    output = run(tmp_path, database_url, "--sets", str(SETS))
    assert output.returncode == 0, output.stdout + output.stderr
    assert "SUCCEEDED, 6 of 6 tasks" in output.stdout

    with Client(Settings(database_url=database_url)) as client:
        (job,) = Jobs(client).list_jobs()
        names = [task.entrypoint for task in job.tasks]
        results = {task.entrypoint: task.result() for task in job.tasks}
    assert sorted(names) == sorted(["sweep.plan", *["sweep.forecast"] * 3, "sweep.table", "sweep.chart"])
    rows = pq.read_table(whole(results["sweep.table"]["artifact"])).to_pylist()
    assert [row["set"] for row in rows] == list(range(SETS))
    assert results["sweep.table"]["best"][0]["objective"] == max(row["objective"] for row in rows)

    drawing = ET.parse(whole(results["sweep.chart"]["artifact"])).getroot()
    assert drawing.tag == f"{SVG}svg"
    assert len(drawing.findall(f"{SVG}circle")) == SETS + len({row["scenario"] for row in rows})
    with psycopg.connect(database_url) as connection:
        assert disagreements(connection) == []


def test_parameter_sets_that_the_model_rejects_end_the_sweep_with_a_reason(tmp_path: Path, database_url: str) -> None:
    path = tmp_path / "sets.parquet"
    good = write_sets(path, 20).pinned()
    rows = good.read(good.parts(20)[0])
    ParquetFiles.write(path, [{**rows[0], "region": "nowhere"}, *rows[1:]])
    output = run(tmp_path, database_url, "--input", str(path))
    assert output.returncode == 1, output.stdout + output.stderr
    assert "FAILED" in output.stdout
    assert "unknown region 'nowhere'" in output.stdout


def test_chart_can_have_one_point_or_none() -> None:
    for points in ([], [("a<b", 0.1, 0.2)]):
        drawing = ET.fromstring(scatter(points, x="loss & gain", y="growth"))
        assert len(drawing.findall(f"{SVG}circle")) == 2 * len(points)
