"""A database with the schema of the previous release, and both releases to use it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from holdfast.schema import migrate
from holdfast.testing.databases import scratch
from tests.upgrade.releases import PREVIOUS, ROOT, Release, previous, this


@pytest.fixture(scope="session")
def previous_source() -> Release:
    """Kept for later runs, with its bytecode: compiling it takes longer than most of these tests."""
    kept = ROOT / ".pytest_cache" / f"previous-{PREVIOUS}"
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=kept.parent))
        try:
            previous(made)
            with suppress(OSError):  # another process was faster
                made.rename(kept)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return Release("previous", kept / "src")


@pytest.fixture(scope="session")
def this_source(tmp_path_factory: pytest.TempPathFactory, previous_source: Release) -> Release:
    return this(tmp_path_factory.mktemp("this"), previous_source)


@pytest.fixture
def before(previous_source: Release) -> Iterator[Release]:
    """The previous release."""
    release = Release(previous_source.name, previous_source.source)
    yield release
    release.close()


@pytest.fixture
def after(this_source: Release) -> Iterator[Release]:
    """This release."""
    release = Release(this_source.name, this_source.source)
    yield release
    release.close()


def name_of(url: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(url)["dbname"])


@pytest.fixture(scope="session")
def landed_template(
    server_url: str, previous_source: Release, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The name of a database that the previous release has created, with a table for the effects of tasks."""
    with scratch(server_url) as url:
        previous_source.ok(url, tmp_path_factory.mktemp("landed"), "holdfast", "db", "upgrade")
        with psycopg.connect(url) as connection:
            assert migrate.current(connection) == previous_source.schema
            connection.execute("create table effects (run_id uuid not null, attempt integer not null)")
        yield name_of(url)


@pytest.fixture(scope="session")
def upgraded_template(
    server_url: str, landed_template: str, this_source: Release, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The name of such a database after this release has upgraded it."""
    with scratch(server_url, landed_template) as url:
        this_source.ok(url, tmp_path_factory.mktemp("upgraded"), "holdfast", "db", "upgrade")
        with psycopg.connect(url) as connection:
            assert migrate.current(connection) == this_source.schema
        yield name_of(url)


@pytest.fixture
def landed_url(server_url: str, landed_template: str) -> Iterator[str]:
    with scratch(server_url, landed_template) as url:
        yield url


@pytest.fixture
def upgraded_url(server_url: str, upgraded_template: str) -> Iterator[str]:
    with scratch(server_url, upgraded_template) as url:
        yield url
