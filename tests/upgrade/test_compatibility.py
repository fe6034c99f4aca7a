"""Code of schema N works on N and on N + 1, and says in one line what to do on any other."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.integration.worker_support import eventually
from tests.upgrade.releases import PREVIOUS, Release, previous

WITHIN = 60.0


def ask(url: str, document: Any = None) -> Any:
    body = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


@pytest.mark.timeout(300)
def test_previous_release_submits_and_executes_on_the_new_schema(
    upgraded_url: str, before: Release, tmp_path: Path
) -> None:
    before.start(upgraded_url, tmp_path, "holdfast", "worker")
    run_id = before.ok(upgraded_url, tmp_path, "holdfast", "submit", "fleet.work", "-p", "n=7").strip()
    for command in ("wait", "show", "events", "attempts", "why", "verify"):
        before.ok(upgraded_url, tmp_path, "holdfast", "runs", command, run_id)
    assert before.ok(upgraded_url, tmp_path, "holdfast", "runs", "result", run_id).strip() == "7"
    assert "fleet.work" in before.ok(upgraded_url, tmp_path, "holdfast", "runs", "list")
    doctor = before.call(upgraded_url, tmp_path, "holdfast", "doctor", "--json")
    found = {item["name"]: item for item in json.loads(doctor.stdout)["items"]}
    assert found["schema"]["state"] == "warn", found["schema"]
    assert f"at {int(before.schema) + 1:04}, one ahead of this code" in found["schema"]["detail"]


@pytest.mark.timeout(300)
def test_previous_release_serves_http_on_the_new_schema(upgraded_url: str, before: Release, tmp_path: Path) -> None:
    before.start(upgraded_url, tmp_path, "holdfast", "api", port=0)
    log = tmp_path / "previous-0.log"
    url = eventually(lambda: re.findall(r"http://127\.0\.0\.1:\d+", log.read_text()), WITHIN)[0]
    before.start(upgraded_url, tmp_path, "holdfast", "worker")
    made = ask(f"{url}/runs", {"model": "fleet.work", "parameters": {"n": 8}})
    eventually(lambda: ask(f"{url}/runs/{made['run_id']}")["status"] == "SUCCEEDED", WITHIN)
    assert ask(f"{url}/readyz")


@pytest.mark.timeout(300)
def test_upgrade_by_the_previous_release_leaves_the_new_schema_unchanged(
    upgraded_url: str, before: Release, after: Release, tmp_path: Path
) -> None:
    done = before.call(upgraded_url, tmp_path, "holdfast", "db", "upgrade")
    assert done.returncode == 0, done
    assert "left as it is" in done.stderr
    assert after.ok(upgraded_url, tmp_path, "holdfast", "db", "current").strip() == after.schema


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "command",
    ["worker --until-empty", "submit fleet.work -p n=1", "api --port 0"],
)
def test_this_release_refuses_the_previous_schema_with_one_line(
    landed_url: str, before: Release, after: Release, tmp_path: Path, command: str
) -> None:
    done = after.call(landed_url, tmp_path, "holdfast", *command.split())
    assert done.returncode == 1, done
    refusal = (
        f"the database is at schema {before.schema}, but this release needs {after.schema}; run: holdfast db upgrade"
    )
    lines = [line for line in done.stderr.splitlines() if "worker.starting" not in line]
    assert [refusal in line for line in lines] == [True], done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.timeout(300)
def test_upgrade_records_the_hashes_in_a_database_of_the_previous_release(upgraded_url: str, after: Release) -> None:
    with psycopg.connect(upgraded_url) as connection:
        recorded = connection.execute("select sha256 from holdfast.migration").fetchone()
    assert recorded is not None
    assert sorted(recorded[0]) == [f"{number:04}" for number in range(1, int(after.schema) + 1)]


def test_missing_git_history_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.upgrade.releases.ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(RuntimeError, match=rf"commit {PREVIOUS[:7]}.*git fetch --unshallow"):
        previous(tmp_path)
