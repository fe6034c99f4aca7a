"""Datasets: split without being read, read in parts, and stable during concurrent writes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.domain.errors import BadInput, HoldfastError
from holdfast.jobs import View
from holdfast.jobs.datasets import ClickHouseTable, DatasetChanged, ParquetFiles, PostgresTable
from holdfast.jobs.views import open_view
from tests.integration.worker_support import eventually


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


class TestPostgres:
    @pytest.fixture
    def table(self, connection: psycopg.Connection[Any], database_url: str) -> PostgresTable:
        connection.execute("create schema shop")
        connection.execute("create table shop.sales (id bigint primary key, amount numeric, note text)")
        connection.execute("insert into shop.sales select n * 3, n / 2.0, 'n' || n from generate_series(1, 1000) as n")
        return PostgresTable(database_url, "shop.sales")

    def test_parts_contain_every_row_once(self, table: PostgresTable) -> None:
        parts = table.parts(150)
        rows = [row for part in parts for row in table.read(part)]
        assert [part.limit for part in parts] == [150] * 6 + [100]
        assert [part.offset for part in parts] == list(range(0, 1000, 150))
        assert [row["id"] for row in rows] == list(range(3, 3001, 3))
        assert rows[1]["note"] == "n2"

    def test_parts_can_be_split_again(self, table: PostgresTable) -> None:
        for part in table.parts(400):
            pieces = table.parts(37, part)
            assert [row for piece in pieces for row in table.read(piece)] == table.read(part)
            assert pieces[0].offset == part.offset

    def test_concurrent_writes_change_parts_only_as_documented(
        self, table: PostgresTable, connection: psycopg.Connection[Any]
    ) -> None:
        parts = table.parts(250)
        connection.execute("insert into shop.sales values (1, 0, 'below'), (1000, 0, 'inside'), (9999, 0, 'above')")
        connection.execute("delete from shop.sales where id = 6")
        found = [row["note"] for part in parts for row in table.read(part)]
        assert len(found) == len(set(found)) == 1000
        assert ("inside" in found, "below" in found, "above" in found, "n2" in found) == (True, False, False, False)
        assert "read as they are then" in View(table, parts[0]).meaning

    def test_key_may_have_any_type(self, connection: psycopg.Connection[Any], database_url: str) -> None:
        connection.execute("create table things (id uuid primary key default gen_random_uuid(), name text, at date)")
        connection.execute(
            "insert into things (name, at) select chr(39) || n, '2026-01-01'::date + n % 7 "
            "from generate_series(1, 500) as n"
        )
        for key in ("id", "name", "at"):
            table = PostgresTable(database_url, "things", key=key, columns=("name",))
            rows = [row for part in table.parts(40) for row in table.read(part)]
            assert sorted(row["name"] for row in rows) == sorted(f"'{n}" for n in range(1, 501))
            assert sum(part.limit for part in table.parts(40)) == 500

    def test_equal_keys_are_in_the_same_part(self, connection: psycopg.Connection[Any], database_url: str) -> None:
        connection.execute("create table dull (id int, n int)")
        connection.execute("insert into dull select n / 10, n from generate_series(0, 99) as n")
        table = PostgresTable(database_url, "dull")
        parts = table.parts(15)
        assert [part.limit for part in parts] == [20, 10] * 3 + [10]
        assert sorted(row["n"] for part in parts for row in table.read(part)) == list(range(100))

    def test_an_empty_table_has_no_parts(self, connection: psycopg.Connection[Any], database_url: str) -> None:
        connection.execute("create table nothing (id int)")
        assert PostgresTable(database_url, "nothing").parts(10) == []
        assert View.of(PostgresTable(database_url, "nothing")).read() == []

    def test_missing_table_is_reported(self, table: PostgresTable) -> None:
        parts = table.parts(10)
        table.drop()
        with pytest.raises(DatasetChanged, match="no longer exists"):
            table.read(parts[0])

    def test_password_in_the_url_is_not_stored(
        self, table: PostgresTable, monkeypatch: pytest.MonkeyPatch, database_url: str
    ) -> None:
        monkeypatch.setenv("SHOP_URL", database_url)
        named = PostgresTable("$SHOP_URL", "shop.sales")
        assert named.read(named.parts(10)[0]) == table.read(table.parts(10)[0])
        assert named.description()["url"] == "$SHOP_URL"
        monkeypatch.delenv("SHOP_URL")
        with pytest.raises(BadInput, match="SHOP_URL"):
            named.parts(10)

    def test_a_result_becomes_the_next_dataset(self, connection: psycopg.Connection[Any], database_url: str) -> None:
        connection.execute("create table made (id int primary key, x float8)")
        made = PostgresTable.write(database_url, "made", [{"id": n, "x": n / 4} for n in range(100)])
        assert View.of(made.reference()).read()[99] == {"id": 99, "x": 24.75}
        PostgresTable.write(database_url, "made", [{"id": 1, "x": 0.0}])
        assert len(View.of(made)) == 1


@pytest.fixture
def parquet() -> Any:
    return pytest.importorskip("pyarrow.parquet", reason="needs the extra: data")


class TestParquet:
    @pytest.fixture
    def files(self, parquet: Any, tmp_path: Path) -> ParquetFiles:
        for number, rows in enumerate((1000, 1, 437)):
            first = number * 10_000
            ParquetFiles.write(
                tmp_path / f"{number}.parquet", [{"n": first + n, "t": f"t{n}"} for n in range(rows)], group=100
            )
        return ParquetFiles(str(tmp_path)).pinned()

    def test_parts_contain_every_row_once(self, files: ParquetFiles) -> None:
        numbers = [*range(1000), 10_000, *range(20_000, 20_437)]
        for size in (1, 99, 100, 101, 1438, 9999):
            parts = files.parts(size)
            wanted = random.Random(size).sample(range(len(parts)), min(5, len(parts)))
            for index in wanted:
                assert [row["n"] for row in files.read(parts[index])] == numbers[index * size : (index + 1) * size]
            assert sum(part.limit for part in parts) == 1438

    def test_only_the_row_groups_of_a_part_are_read(self, files: ParquetFiles, monkeypatch: pytest.MonkeyPatch) -> None:
        import pyarrow.parquet as pq

        read: list[list[int]] = []
        real = pq.ParquetFile.read_row_groups

        def spy(self: Any, groups: list[int], **kwargs: Any) -> Any:
            read.append(groups)
            return real(self, groups, **kwargs)

        monkeypatch.setattr(pq.ParquetFile, "read_row_groups", spy)
        files.read(files.parts(150)[1])
        files.read(files.parts(50)[3])
        assert read == [[1, 2], [1]]

    def test_a_file_that_changed_is_refused(self, files: ParquetFiles, tmp_path: Path) -> None:
        first, *_, last = files.parts(100)
        assert len(files.read(first)) == 100
        ParquetFiles.write(tmp_path / "2.parquet", [{"n": 1, "t": ""}])
        assert len(files.read(first)) == 100
        with pytest.raises(DatasetChanged, match="has changed"):
            files.read(last)
        (tmp_path / "2.parquet").unlink()
        with pytest.raises(DatasetChanged, match="can no longer be read"):
            files.read(last)

    def test_columns_patterns_and_references_are_supported(self, files: ParquetFiles, tmp_path: Path) -> None:
        one = ParquetFiles(f"{tmp_path}/[01].parquet", columns=("t",)).pinned()
        assert len(View.of(one)) == 1001
        view = View(one, one.parts(500)[2])
        assert open_view(view.reference()["$view"]).read() == [{"t": "t0"}]
        with pytest.raises(BadInput, match="no Parquet file"):
            ParquetFiles(str(tmp_path / "none")).pinned()


class TestClickHouse:
    @pytest.fixture
    def directory(self, parquet: Any, tmp_path: Path) -> Path:
        pytest.importorskip("chdb", reason="needs the extra: data")
        return tmp_path / "clickhouse"

    @pytest.fixture
    def table(self, directory: Path) -> ClickHouseTable:
        rows = [{"id": n * 2, "name": f"it's {n}", "x": n / 8} for n in range(1000)]
        return ClickHouseTable.write(directory, "sales", rows, order_by="id")

    def host(self, directory: Path) -> int:
        import json

        return int(json.loads((directory / ".holdfast-host").read_text())["pid"])

    def test_parts_contain_every_row_once(self, table: ClickHouseTable) -> None:
        parts = table.parts(150)
        assert [part.limit for part in parts] == [150] * 6 + [100]
        rows = [row for part in parts for row in table.read(part)]
        assert [row["id"] for row in rows] == list(range(0, 2000, 2))
        assert rows[1] == {"id": 2, "name": "it's 1", "x": 0.125}
        for part in parts[:2]:
            pieces = table.parts(40, part)
            assert [row for piece in pieces for row in table.read(piece)] == table.read(part)

    def test_table_may_be_ordered_by_several_columns(self, directory: Path) -> None:
        rows = [{"day": f"2026-01-{n % 3 + 1:02}", "n": n} for n in range(300)]
        table = ClickHouseTable.write(directory, "days", rows, order_by=("day", "n"))
        parts = table.parts(70)
        assert [part.limit for part in parts] == [70] * 4 + [20]
        assert sorted(row["n"] for part in parts for row in table.read(part)) == list(range(300))

    def test_rows_added_later_do_not_move_the_parts(self, table: ClickHouseTable, directory: Path) -> None:
        from holdfast.jobs.datasets import hosting

        parts = table.parts(250)
        hosting.query(str(directory), "insert into sales values (501, 'inside', 0), (99999, 'above', 0)")
        found = [row["name"] for part in parts for row in table.read(part)]
        assert len(found) == len(set(found)) == 1001
        assert "inside" in found
        assert table.count() == 1002

    def test_many_processes_read_one_directory_and_a_killed_host_is_replaced(
        self, table: ClickHouseTable, directory: Path
    ) -> None:
        code = (
            "import sys\n"
            "from holdfast.jobs.datasets import ClickHouseTable\n"
            "table = ClickHouseTable(sys.argv[1], 'sales', order_by='id')\n"
            "print(sum(row['id'] for part in table.parts(100) for row in table.read(part)))\n"
        )

        def read() -> str:
            command = [sys.executable, "-c", code, str(directory)]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

        assert table.count() == 1000
        first = self.host(directory)
        with ThreadPoolExecutor(3) as pool:
            reading = [pool.submit(read) for _ in range(3)]
            while not all(one.done() for one in reading):
                assert table.count() == 1000  # so that the host does not exit as idle while the processes start
        assert {one.result() for one in reading} == {str(sum(range(0, 2000, 2)))}
        assert self.host(directory) == first
        os.kill(first, signal.SIGKILL)
        assert table.count() == 1000
        assert self.host(directory) != first

    def test_idle_host_exits(self, table: ClickHouseTable, directory: Path) -> None:
        host = self.host(directory)

        def gone() -> bool:
            try:
                return Path(f"/proc/{host}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                return True

        eventually(gone)
        assert not (directory / ".holdfast-host").exists()
        assert table.count() == 1000

    def test_missing_directory_or_table_is_reported(self, table: ClickHouseTable, tmp_path: Path) -> None:
        part = table.parts(10)[0]
        table.drop()
        with pytest.raises(DatasetChanged, match="is no longer in"):
            table.read(part)
        with pytest.raises(HoldfastError, match="no ClickHouse directory"):
            ClickHouseTable(str(tmp_path / "none"), "t", order_by="id").parts(10)
