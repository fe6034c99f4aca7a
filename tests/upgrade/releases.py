"""Two releases of Holdfast on one database: the previous one, and this one.

The code of the previous release is taken from git, so these tests need a clone with its history. The migration of this
release is extended to change the busiest tables.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.processes.family import alive, family
from tests.integration.worker_support import eventually

ROOT = Path(__file__).parents[2]

# The newest commit of the previous release. Update it at each release, in the commit that freezes the migrations.
PREVIOUS = "93897d9a436f26fe2ae4923bc5106712f0b69a92"

TASKS = "tests.upgrade.fleet_tasks"

# Expand only, as docs/decisions/0009 requires: the previous release must work on it.
STAND_IN = """
alter table holdfast.runs add column stand_in text;
alter table holdfast.ready add column stand_in text;
alter table holdfast.waiting add column stand_in text;
alter table holdfast.leases add column stand_in text;
alter table holdfast.attempts add column stand_in text;
alter table holdfast.jobs add column stand_in text;
alter table holdfast.maps add column stand_in text;
alter table holdfast.workers add column stand_in text;
alter table holdfast.deliveries add column stand_in text;
create table holdfast.stand_in (run_id uuid primary key);
create function holdfast.stand_in() returns trigger language plpgsql as 'begin return null; end';
create trigger attempts_stand_in after insert on holdfast.attempts for each row execute function holdfast.stand_in();
create index leases_stand_in on holdfast.leases (stand_in) where stand_in is not null;
"""


@dataclass
class Release:
    """The source of a release, and its programs as processes."""

    name: str
    source: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def schema(self) -> str:
        """The number of its newest migration."""
        return max(file.name[:4] for file in (self.source / "holdfast" / "sql" / "migrations").glob("*.sql"))

    def environment(self, url: str, directory: Path, **settings: Any) -> dict[str, str]:
        given = {
            "database_url": url,
            "tasks": TASKS,
            "artifacts": directory / "artifacts",
            "lease_seconds": 3,
            "renew_seconds": 0.5,
            "grace_seconds": 5,
            "log_format": "json",
            **settings,
        }
        outside = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        return {
            **outside,
            "PYTHONPATH": f"{self.source}{os.pathsep}{ROOT}",
            # The previous release leaves JIT on: on a stock server each statement is compiled, which takes seconds.
            "PGOPTIONS": "-c jit=off",
            **{f"HOLDFAST_{name.upper()}": str(value) for name, value in given.items()},
        }

    def call(self, url: str, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of this release to its end."""
        return subprocess.run(
            [sys.executable, "-m", *arguments],
            env=self.environment(url, directory),
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=200,
        )

    def ok(self, url: str, directory: Path, *arguments: str) -> str:
        """The output of a program that must succeed."""
        done = self.call(url, directory, *arguments)
        assert done.returncode == 0, done
        return done.stdout

    def start(self, url: str, directory: Path, *arguments: str, **settings: Any) -> subprocess.Popen[bytes]:
        """Start a program of this release; its output goes to a file in the directory."""
        log = directory / f"{self.name}-{len(self.processes)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                env=self.environment(url, directory, **settings),
                cwd=directory,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def close(self) -> None:
        for process in self.processes:
            members = family(process.pid)
            for member in members:
                with suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
            process.wait()
            eventually(lambda members=members: not alive(members))
        self.processes.clear()


def previous(directory: Path) -> Release:
    """The previous release, as it was released."""
    archive = subprocess.run(["git", "archive", PREVIOUS, "src"], cwd=ROOT, capture_output=True)
    if archive.returncode != 0:
        raise RuntimeError(
            f"upgrades are tested with the code of commit {PREVIOUS[:7]}, which git does not give: "
            f"{archive.stderr.decode().strip()}. Run the tests in a clone with its history (git fetch --unshallow)."
        )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(directory, filter="data")
    return Release("previous", directory / "src")


def this(directory: Path, before: Release) -> Release:
    """This release, whose new migration also changes the busiest tables; one is added if it has none."""
    shutil.copytree(ROOT / "src", directory / "src")  # with its bytecode, which stays valid
    release = Release("this", directory / "src")
    migrations = release.source / "holdfast" / "sql" / "migrations"
    number = f"{int(before.schema) + 1:04}"
    [migration] = [*migrations.glob(f"{number}_*.sql")] or [migrations / f"{number}_stand_in.sql"]
    with migration.open("a") as script:
        script.write(STAND_IN)
    return release
