"""Datasets and arguments that cannot be mapped, read or collected are rejected with one clear error."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import task
from holdfast.client import Client
from holdfast.domain.errors import BadInput, HoldfastError
from holdfast.jobs import Jobs, View
from holdfast.jobs.datasets import ClickHouseTable, ParquetFiles, PostgresTable
from holdfast.runtime.settings import Settings
from tests.integration.jobs_support import Stage, stage

__all__ = ["stage"]


@task("refusals.slice")
def slice_(view: View, options: int = 0, chunk_size: int = 0, dataset: str = "", task: str = "") -> None: ...


@task("refusals.join")
def join(results: Sequence[Any], into: str = "", handle: str = "") -> None: ...


@pytest.fixture
def jobs(stage: Stage) -> Iterator[Jobs]:
    with Client(Settings(database_url=stage.url)) as client:
        yield Jobs(client)


class TestPostgres:
    @pytest.fixture(autouse=True)
    def table(self, stage: Stage) -> None:
        stage.connection.execute("create table public.notes (id bigint, note text)")
        stage.connection.execute("insert into public.notes values (1, 'a'), (null, 'b'), (2, 'c'), (null, 'd')")

    def test_table_with_null_keys_is_refused(self, stage: Stage, jobs: Jobs) -> None:
        with pytest.raises(BadInput, match=r"2 rows of public\.notes have no id"):
            jobs.map("refusals.slice", PostgresTable(stage.url, "public.notes"), 1)
        assert jobs.list_jobs() == []
        stage.connection.execute("delete from public.notes where id is null")
        assert len(jobs.map("refusals.slice", PostgresTable(stage.url, "public.notes"), 1)) == 2

    @pytest.mark.parametrize(
        ("named", "message"),
        [
            ({"table": "public.none"}, "there is no table public.none"),
            ({"table": "public.notes", "key": "number"}, "public.notes has no column number"),
            ({"table": "public.notes", "columns": ("id", "text")}, "public.notes has no column text"),
        ],
    )
    def test_missing_table_or_column_is_refused(self, stage: Stage, jobs: Jobs, named: Any, message: str) -> None:
        stage.connection.execute("delete from public.notes where id is null")
        with pytest.raises(BadInput, match=message):
            jobs.map("refusals.slice", PostgresTable(stage.url, **named), 1)

    def test_server_that_does_not_answer_is_named_without_the_password(self, jobs: Jobs) -> None:
        table = PostgresTable("postgresql://me:secret@127.0.0.1:1/none", "public.notes")
        with pytest.raises(HoldfastError, match=r"the database of table public\.notes cannot be reached") as caught:
            jobs.map("refusals.slice", table)
        assert "secret" not in str(caught.value)


class TestParquet:
    @pytest.fixture(autouse=True)
    def files(self, tmp_path: Path) -> None:
        pytest.importorskip("pyarrow", reason="needs the extra: data")
        for year, month in ((2025, 12), (2026, 1), (2026, 2)):
            place = tmp_path / "sales" / f"year={year}" / f"month={month:02}"
            place.mkdir(parents=True)
            ParquetFiles.write(place / "part-0.parquet", [{"id": year * 100 + month, "n": 1}, {"id": 7, "n": 2}])

    def test_directory_is_read_with_everything_in_it(self, tmp_path: Path) -> None:
        rows = View.of(ParquetFiles(str(tmp_path / "sales"))).read()
        assert [(row["id"], row["year"], row["month"]) for row in rows if row["id"] != 7] == [
            (202512, 2025, 12),
            (202601, 2026, 1),
            (202602, 2026, 2),
        ]
        assert len(rows) == 6

    def test_columns_may_come_from_directory_names(self, tmp_path: Path) -> None:
        rows = View.of(ParquetFiles(str(tmp_path / "sales"), ("n", "year"))).read()
        assert rows[:3] == [{"n": 1, "year": 2025}, {"n": 2, "year": 2025}, {"n": 1, "year": 2026}]

    def test_slices_contain_the_columns_of_their_directories(self, tmp_path: Path) -> None:
        dataset = ParquetFiles(str(tmp_path / "sales")).pinned()
        parts = [dataset.read(part) for part in dataset.parts(4)]
        assert [[row["year"] for row in part] for part in parts] == [[2025, 2025, 2026, 2026], [2026, 2026]]

    def test_values_that_are_not_numbers_are_read_as_text(self, tmp_path: Path) -> None:
        for region in ("north", "7", "__HIVE_DEFAULT_PARTITION__"):
            place = tmp_path / "by region" / f"region={region}"
            place.mkdir(parents=True)
            ParquetFiles.write(place / "x.parquet", [{"id": 1}])
        rows = View.of(ParquetFiles(str(tmp_path / "by region"))).read()
        assert [row["region"] for row in rows] == ["7", None, "north"]

    def test_missing_column_is_refused(self, jobs: Jobs, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match="has no column none"):
            jobs.map("refusals.slice", ParquetFiles(str(tmp_path / "sales"), ("id", "none")))

    def test_file_that_is_not_parquet_is_refused(self, jobs: Jobs, tmp_path: Path) -> None:
        (tmp_path / "sales" / "broken.parquet").write_text("not Parquet")
        with pytest.raises(BadInput, match=r"broken.parquet cannot be read as Parquet"):
            jobs.map("refusals.slice", ParquetFiles(str(tmp_path / "sales")))


class TestClickHouse:
    @pytest.fixture(autouse=True)
    def needs_chdb(self) -> None:
        pytest.importorskip("chdb", reason="needs the extra: data")

    def test_null_keys_missing_columns_and_tables_are_refused(self, jobs: Jobs, tmp_path: Path) -> None:
        rows = [{"id": 1, "n": 1}, {"id": None, "n": 2}]
        with pytest.raises(BadInput, match="1 row has no id"):
            ClickHouseTable.write(tmp_path / "ch", "sales", rows, "id")
        with pytest.raises(BadInput, match="a row has no column number"):
            ClickHouseTable.write(tmp_path / "ch", "sales", rows, "number")
        ClickHouseTable.write(tmp_path / "ch", "sales", rows, "n")
        with pytest.raises(BadInput, match="1 row of sales has no id"):
            jobs.map("refusals.slice", ClickHouseTable(str(tmp_path / "ch"), "sales", "id"))
        for table, order_by, columns in (("sales", "none", ()), ("sales", "n", ("n", "none"))):
            with pytest.raises(BadInput, match="sales has no column none"):
                jobs.map("refusals.slice", ClickHouseTable(str(tmp_path / "ch"), table, order_by, columns))
        with pytest.raises(BadInput, match="there is no table none"):
            jobs.map("refusals.slice", ClickHouseTable(str(tmp_path / "ch"), "none", "id"))
        with pytest.raises(BadInput, match="no ClickHouse directory"):
            jobs.map("refusals.slice", ClickHouseTable(str(tmp_path / "nowhere"), "sales", "id"))
        assert len(jobs.map("refusals.slice", ClickHouseTable(str(tmp_path / "ch"), "sales", "n"), 1)) == 2

    def test_directory_that_another_process_has_open_is_refused_with_its_name(self, jobs: Jobs, tmp_path: Path) -> None:
        code = (
            "import sys; from chdb.session import Session; s = Session(sys.argv[1]); print('open', flush=True); input()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "open\n"
            with pytest.raises(HoldfastError, match="is open in another process; close it there") as caught:
                jobs.map("refusals.slice", ClickHouseTable(str(tmp_path), "sales", "id"))
            assert "Traceback" not in str(caught.value)
            other.kill()


@pytest.mark.parametrize("handle", ["abc", None, {}, {"$map": 5}, {"$map": {"id": "x"}}, 7])
def test_collect_refuses_a_value_that_is_not_a_handle(jobs: Jobs, handle: Any) -> None:
    with pytest.raises(BadInput, match="collect takes the handle that map returned"):
        jobs.collect(handle, into="refusals.join")


def test_arguments_with_the_names_of_map_arguments_reach_the_task(jobs: Jobs) -> None:
    options = {"kwargs": {"options": 3, "chunk_size": 4}}
    handle = jobs.map("refusals.slice", [1], 1, options=options, dataset="d", task="t")
    (made,) = jobs.get_job(handle.job_id).tasks
    assert {**made.kwargs, "view": None} == {"view": None, "options": 3, "chunk_size": 4, "dataset": "d", "task": "t"}
    joined = jobs.collect(handle, into="refusals.join", handle="h", options={"kwargs": {"into": "i"}})
    assert (joined.kwargs["handle"], joined.kwargs["into"]) == ("h", "i")


def test_argument_given_twice_is_refused(jobs: Jobs) -> None:
    with pytest.raises(BadInput, match="dataset is given twice"):
        jobs.map("refusals.slice", [1], options={"kwargs": {"dataset": "a"}}, dataset="b")


def test_view_and_results_cannot_be_passed_by_the_caller(jobs: Jobs) -> None:
    with pytest.raises(BadInput, match="/kwargs/view: is set by map"):
        jobs.map("refusals.slice", [1], view=5)
    handle = jobs.map("refusals.slice", [1])
    with pytest.raises(BadInput, match="/kwargs/results: is set by collect"):
        jobs.collect(handle, into="refusals.join", results=[])


def test_argument_that_is_not_a_view_is_refused(jobs: Jobs) -> None:
    for view in (5, [1, 2], {"view": 1}):
        with pytest.raises(BadInput, match=r"/tasks/0/kwargs/view: .*reference\(\)"):
            jobs.create_job("no view", [{"entrypoint": "refusals.slice", "kwargs": {"view": view}}])
    good = {"entrypoint": "refusals.slice", "kwargs": {"view": View.of([1, 2]).reference()}}
    assert jobs.create_job("a view", [good]).total_tasks == 1
