"""The rolling upgrade of docs/operations.md, with its own commands, from the previous release to this one."""

from __future__ import annotations

import sys
from pathlib import Path

import psycopg
import pytest

from holdfast.schema import migrate
from tests.integration.operations_support import run
from tests.upgrade.releases import ROOT, Release


def command(directory: Path, release: Release) -> Path:
    """The `holdfast` of a release."""
    made = directory / f"holdfast-{release.name}"
    made.write_text(
        f'#!/bin/sh\nexport PYTHONPATH={release.source}:{ROOT} PGOPTIONS="-c jit=off"\n'
        f'exec {sys.executable} -m holdfast "$@"\n'
    )
    made.chmod(0o755)
    return made


@pytest.mark.timeout(300)
def test_two_workers_are_upgraded_one_by_one_while_runs_are_executed(
    landed_url: str, before: Release, tmp_path: Path
) -> None:
    with psycopg.connect(landed_url) as connection:
        connection.execute(
            "drop table effects"
        )  # created for other tests; it is in our schema because the role has the same name
    # Without the tests' additions to the schema, which the check at the end of the page would report.
    after = Release("this", ROOT / "src")
    old, new = command(tmp_path, before), command(tmp_path, after)
    # It starts more than twenty processes one after another.
    run("Upgrades", tmp_path, tmp_path, seconds=250, OWNER_URL=landed_url, OLD=str(old), NEW=str(new))
    with psycopg.connect(landed_url) as connection:
        assert migrate.current(connection) == after.schema
        counted = connection.execute("select status, count(*) from holdfast.run_status group by status").fetchall()
        assert counted == [("SUCCEEDED", 6)]
        names = {row[0] for row in connection.execute("select name from holdfast.workers")}
        assert names == {"one", "two"}
