"""docs/operations.md: its commands run unchanged, and everything that it names exists."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast.client import Client
from holdfast.doctor import State, examine
from holdfast.embedded.places import binaries
from holdfast.runtime.settings import Settings
from holdfast.testing.databases import scratch
from tests.databases import with_database
from tests.integration.operations_support import PAGE, ROOT, run, section
from tests.servers import binaries as debian_binaries

ROLES = ("app", "holdfast_worker")
UNITS = ROOT / "examples" / "systemd"


@pytest.fixture
def programs(server_connection: psycopg.Connection, tmp_path: Path) -> Path:
    """A directory with `holdfast`, and with the server's own `psql`, `pg_dump` and `pg_restore`."""
    version = str(server_connection.info.server_version // 10000)
    found = debian_binaries(version) or binaries()
    made = tmp_path / "bin"
    made.mkdir()
    for name in ("psql", "pg_dump", "pg_restore"):
        (made / name).write_text(f'#!/bin/sh\nexec {found / name} "$@"\n')
    (made / "holdfast").write_text(f'#!/bin/sh\nexec {sys.executable} -m holdfast "$@"\n')
    for program in made.iterdir():
        program.chmod(0o755)
    return made


@pytest.fixture
def owner_url(server_url: str) -> Iterator[str]:
    with scratch(server_url) as url:
        yield url
        with psycopg.connect(url, autocommit=True) as connection:
            for role in ROLES:
                connection.execute(f"drop owned by {role}")  # type: ignore[arg-type]
    with psycopg.connect(server_url, autocommit=True) as connection:
        for role in ROLES:
            connection.execute(f"drop role {role}")  # type: ignore[arg-type]


def as_role(url: str, role: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}").geturl()


@pytest.mark.timeout(300)
def test_commands_of_the_page_for_roles_poolers_and_backups_work(
    owner_url: str, server_url: str, pooler_url: str, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pooled = with_database(pooler_url, str(conninfo_to_dict(owner_url)["dbname"]))
    client, worker = (as_role(owner_url, role) for role in ROLES)
    run("Roles", tmp_path, programs, OWNER_URL=owner_url, CLIENT_URL=client, WORKER_URL=worker)
    run("Poolers", tmp_path, programs, POOLED_URL=pooled)
    with Client(Settings(database_url=owner_url)) as before:
        waiting = before.submit("mock", {"seconds": 0}, key="before-the-backup")
    with scratch(server_url) as restored:
        run("Backup and restore", tmp_path, programs, OWNER_URL=owner_url, RESTORED_URL=restored)
        with Client(Settings(database_url=restored)) as after:
            assert after.get(waiting.id).status == "SUCCEEDED"
            assert after.submit("mock", {"seconds": 0}, key="before-the-backup").id == waiting.id
        monkeypatch.delenv("HOLDFAST_TEST_RUN_DIRECTORY")
        monkeypatch.setenv("HOLDFAST_DATABASE_URL", restored)
        monkeypatch.chdir(tmp_path)
        # The server of the tests runs without fsync, and there is no worker.
        wrong = {found.name for found in examine() if found.state in (State.FAIL, State.WARN)}
        assert wrong <= {"durability", "workers"}
        with psycopg.connect(restored, autocommit=True) as connection:
            for role in ROLES:
                connection.execute(f"drop owned by {role}")  # type: ignore[arg-type]


def test_the_page_names_only_settings_commands_and_metrics_that_exist() -> None:
    for name in re.findall(r"`?HOLDFAST_([A-Z_]+)\b", PAGE):
        assert name.lower() in Settings.__dataclass_fields__
    catalogue = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    named = set(re.findall(r"\b(holdfast_[a-z_]+)\b", section("Health and metrics")))
    assert named
    assert all(f"`{name}`" in catalogue for name in named)


def test_links_of_the_page_exist() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target


def test_the_systemd_units_are_valid(tmp_path: Path) -> None:
    for unit in UNITS.glob("*.service"):
        text = unit.read_text().replace("/opt/holdfast/bin/holdfast", sys.executable).replace("User=holdfast\n", "")
        assert "KillMode=mixed" in text
        assert "EnvironmentFile=/etc/holdfast/holdfast.env" in text
        (tmp_path / unit.name).write_text(text)
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed, so the units were not verified")
    names = ["holdfast-api.service", "holdfast-worker@1.service"]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in names)],
        capture_output=True,
        text=True,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
    )
    said = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "holdfast-" in line]
    assert (done.returncode, said) == (0, []), done.stderr


def test_the_environment_of_the_units_has_known_settings() -> None:
    lines = [line for line in (UNITS / "holdfast.env").read_text().splitlines() if line and line[0] != "#"]
    for line in lines:
        name = line.partition("=")[0].removeprefix("HOLDFAST_").lower()
        assert name in Settings.__dataclass_fields__
