"""Released migrations never change: their hashes are committed, recorded in each database, and compared at start-up."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.client import Client
from holdfast.domain.errors import SchemaMismatch
from holdfast.runtime.settings import Settings
from holdfast.schema import alembic_run, migrate
from holdfast.testing.databases import scratch

ROOT = Path(__file__).parents[2]
FREEZE = ROOT / "tools" / "freeze-migrations"


@pytest.fixture
def empty_url(server_url: str) -> Iterator[str]:
    with scratch(server_url) as url:
        yield url


def recorded(url: str) -> Any:
    with psycopg.connect(url) as connection:
        row = connection.execute("select to_jsonb(migration) -> 'sha256' from holdfast.migration").fetchone()
    return row[0] if row else None


def record(url: str, number: str, sha256: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "update holdfast.migration set sha256 = sha256 || jsonb_build_object(%s::text, %s::text)", [number, sha256]
        )


def forget(url: str) -> None:
    """Remove the recorded hashes, as in databases of early releases."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("alter table holdfast.migration drop column sha256")


def freeze(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, FREEZE, *arguments, folder], capture_output=True, text=True)


def test_released_migrations_have_not_changed() -> None:
    lines = (resources.files("holdfast.sql") / "migrations" / "frozen.sha256").read_text("utf-8").splitlines()
    frozen = {file: sha256 for sha256, file in (line.split("  ") for line in lines)}
    own = {migration.file: migration.sha256 for migration in migrate.migrations()}
    assert set(frozen) >= {"0001_ground.sql", "0002_jobs.sql", "0003_http.sql", "0004_outbox.sql"}
    assert {file: own.get(file) for file in frozen} == frozen, "a released migration never changes: write a new one"


def test_a_changed_frozen_file_fails_the_check_and_a_new_file_does_not(tmp_path: Path) -> None:
    (tmp_path / "0001_first.sql").write_text("select 1;\n")
    assert freeze(tmp_path).returncode == 0
    (tmp_path / "0002_second.sql").write_text("select 2;\n")
    assert freeze(tmp_path, "--check").returncode == 0
    (tmp_path / "0001_first.sql").write_text("select 1, 1;\n")
    for arguments in ((), ("--check",)):
        refused = freeze(tmp_path, *arguments)
        assert refused.returncode == 1
        assert "0001_first.sql" in refused.stderr
    (tmp_path / "0001_first.sql").unlink()
    assert "0001_first.sql" in freeze(tmp_path, "--check").stderr


def test_freezing_adds_the_hash_of_a_new_file(tmp_path: Path) -> None:
    (tmp_path / "0001_first.sql").write_text("select 1;\n")
    freeze(tmp_path)
    before = (tmp_path / "frozen.sha256").read_text()
    (tmp_path / "0002_second.sql").write_text("select 2;\n")
    assert "0002_second.sql" in freeze(tmp_path).stdout
    after = (tmp_path / "frozen.sha256").read_text()
    assert after.startswith(before)
    assert after.endswith("  0002_second.sql\n")


def test_an_upgrade_records_the_hash_of_each_migration(empty_url: str) -> None:
    migrate.upgrade(empty_url)
    assert recorded(empty_url) == {migration.number: migration.sha256 for migration in migrate.migrations()}


def test_an_upgrade_that_fails_records_only_what_it_applied(empty_url: str) -> None:
    good = migrate.Migration("0001", "good", "select 1")
    bad = migrate.Migration("0002", "bad", "select 1 / 0")
    with pytest.raises(psycopg.errors.DivisionByZero):
        alembic_run.run(empty_url, [good, bad])
    assert recorded(empty_url) == {"0001": good.sha256}


def test_a_database_without_recorded_hashes_is_accepted_and_filled_in_by_the_next_upgrade(database_url: str) -> None:
    forget(database_url)
    with psycopg.connect(database_url) as connection:
        migrate.require(connection)
    migrate.upgrade(database_url)
    assert recorded(database_url) == {migration.number: migration.sha256 for migration in migrate.migrations()}


def test_filling_in_leaves_recorded_hashes_alone(database_url: str) -> None:
    newest = migrate.migrations()[-1]
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("update holdfast.migration set sha256 = sha256 - %s::text", [newest.number])
    record(database_url, "0009", "of a later release")
    migrate.upgrade(database_url)
    own = {migration.number: migration.sha256 for migration in migrate.migrations()}
    assert recorded(database_url) == own | {"0009": "of a later release"}


def test_code_refuses_a_database_with_a_different_migration(database_url: str, tmp_path: Path) -> None:
    record(database_url, "0003", "ab" * 32)
    with psycopg.connect(database_url) as connection, pytest.raises(SchemaMismatch, match="0003") as refused:
        migrate.require(connection)
    assert "\n" not in str(refused.value)
    with pytest.raises(SchemaMismatch, match="0003"):
        Client(Settings(database_url=database_url, artifacts=str(tmp_path)))


def test_an_upgrade_refuses_a_database_with_a_different_migration(database_url: str) -> None:
    record(database_url, "0003", "ab" * 32)
    further = migrate.Migration(f"{int(migrate.latest()) + 1:04}", "further", "create table holdfast.further ()")
    for upgrade in (
        lambda: migrate.upgrade(database_url),
        lambda: alembic_run.run(database_url, [*migrate.migrations(), further]),
    ):
        with pytest.raises(SchemaMismatch, match="0003"):
            upgrade()
    with psycopg.connect(database_url) as connection:
        assert migrate.current(connection) == migrate.latest()


def test_comparing_hashes_takes_no_additional_statement(database_url: str) -> None:
    statements = []

    class Counting(psycopg.Connection[Any]):
        def execute(self, query: Any, *rest: Any, **options: Any) -> Any:
            statements.append(query)
            return super().execute(query, *rest, **options)

    with Counting.connect(database_url) as connection:
        migrate.current(connection)
        for_the_number = len(statements)
        migrate.require(connection)
    assert len(statements) == 2 * for_the_number
