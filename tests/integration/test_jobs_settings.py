"""Settings of the source's environment: its sample starts a worker, and each worker has its own time limit."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from time import monotonic
from urllib.parse import parse_qs, urlsplit

import pytest

from holdfast import Retry, current_run, task
from holdfast.client import Client
from holdfast.runtime.settings import load
from tests.integration.cli_support import FOREIGN
from tests.integration.source_samples import ENVIRONMENT
from tests.integration.worker_support import ROOT, Stage

MODULE = "tests.integration.test_jobs_settings"


@task("settings.work", retry=Retry(max_attempts=1))
def work(seconds: float) -> str:
    started = monotonic()
    while monotonic() - started < seconds:
        current_run().progress(monotonic() - started)
    return "done"


@task("settings.work_inline", executor="inline", retry=Retry(max_attempts=1))
def work_inline(seconds: float) -> str:
    return work(seconds)


def test_time_limit_of_a_worker_applies_to_runs_without_their_own(database_url: str, tmp_path: Path) -> None:
    stage = Stage(database_url, tmp_path, tasks=(MODULE,))
    stage.settings = replace(stage.settings, task_timeout_seconds=0.2)  # the client of the stage does not know it
    try:
        runs = [stage.submit(name, seconds=60) for name in ("settings.work", "settings.work_inline")]
        with Client(replace(stage.settings, task_timeout_seconds=60)) as patient:
            allowed = patient.submit("settings.work", {"seconds": 0.5})
        with stage.worker():
            for run in runs:
                ended = stage.ended(run)
                assert (ended.status, ended.reason) == ("FAILED", "timeout")
                assert "0.2 s" in str(ended.last_error)
            assert stage.ended(allowed).status == "SUCCEEDED"
    finally:
        stage.close()


def test_lease_is_three_heartbeats_long_if_only_the_heartbeat_is_set(tmp_path: Path) -> None:
    settings = load({"WORKER_HEARTBEAT_INTERVAL": "30"}, tmp_path)
    assert (settings.renew_seconds, settings.lease_seconds) == (30.0, 90.0)
    assert settings.origins["lease_seconds"] == "three times renew_seconds"
    assert load({"WORKER_HEARTBEAT_INTERVAL": "5"}, tmp_path).lease_seconds == 60.0
    given = {"WORKER_HEARTBEAT_INTERVAL": "5", "HOLDFAST_LEASE_SECONDS": "20"}
    assert load(given, tmp_path).lease_seconds == 20.0


def test_sample_environment_of_the_source_starts_a_worker(database_url: str, tmp_path: Path) -> None:
    parts = urlsplit(database_url)
    host = parts.hostname or parse_qs(parts.query)["host"][0]
    place = {
        "POSTGRES_HOST": host,
        "POSTGRES_PORT": str(parts.port or 5432),
        "POSTGRES_USER": parts.username or "postgres",
        "POSTGRES_PASSWORD": parts.password or "secret",
        "POSTGRES_DB": parts.path.strip("/"),
    }
    lines = [
        f"{name}={place[name]}" if (name := line.partition("=")[0]) in place else line
        for line in ENVIRONMENT.splitlines()
    ]
    (tmp_path / "sample.env").write_text("\n".join(lines))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    ended = subprocess.run(
        ["bash", "-c", 'set -a; . ./sample.env; exec "$0" -m holdfast worker --until-empty', sys.executable],
        cwd=tmp_path,
        env=kept | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("name", ["WORKER_TASK_TIMEOUT", "WORKER_MAX_RETRIES"])
def test_page_about_jobs_says_where_each_setting_applies(name: str) -> None:
    page = (ROOT / "docs" / "jobs.md").read_text("utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith(f"| `{name}`")]
    assert "worker" in row
