"""Lists by every filter: they are complete, and read few rows however many there are."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import sql

from bench import lists
from holdfast import Client, ops
from holdfast.domain.errors import BadInput
from holdfast.drivers import psycopg as driver
from holdfast.drivers.drive import drive
from holdfast.runtime.settings import Settings
from holdfast.sql.statement import Rows, Statement
from tests.explorer.wire import compiled

# How many rows a plan reads depends on dead rows in the tables.
pytestmark = pytest.mark.fresh_database


def matching(runs: list[tuple[Any, ...]], question: dict[str, Any]) -> list[str]:
    """The expected list, determined by examining every run."""
    return [
        id_
        for id_, status, queue, task, tags in runs
        if question["status"] in (None, status)
        and question["queue"] in (None, queue)
        and question["task"] in (None, task)
        and (question["tag"] is None or question["tag"] in (tags or ()))
    ]


def test_pages_of_every_combination_of_filters_add_up_to_the_whole_list(database_url: str) -> None:
    lists.fill(database_url, 3000)
    with psycopg.connect(database_url, autocommit=True) as connection:
        everything = "select id::text, status, queue, task, tags from holdfast.run_status order by id desc"
        runs = connection.execute(everything).fetchall()
        for question in lists.questions():
            found: list[str] = []
            before: dict[str, str] = {}
            while True:
                page = driver.run(connection, ops.list_runs(**question, **before, limit=400))
                found += [run.id for run in page]
                if page.next_cursor is None:
                    break
                before = {"before": page.next_cursor}
            assert found == matching(runs, question), question


def rows_read(connection: psycopg.Connection[Any], question: dict[str, Any]) -> int:
    """How many rows the server reads for a query."""
    total = 0

    def count(node: dict[str, Any]) -> int:
        own = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
        return int(own * node["Actual Loops"] if "Relation Name" in node else 0) + sum(
            count(one) for one in node.get("Plans", ())
        )

    def execute(statement: Statement[Any]) -> Rows:
        nonlocal total
        text, names = compiled(statement.sql)
        connection.execute(b"prepare asked as " + text)
        given = sql.SQL(", ").join(sql.Literal(statement.params[name]) for name in names)
        explain = sql.SQL("explain (analyze, format json) execute asked({})").format(given)
        total += count(connection.execute(explain).fetchall()[0][0][0]["Plan"])
        connection.execute("deallocate asked")
        return connection.execute(statement.sql, statement.params).fetchall()

    drive(ops.list_runs(**question), execute)
    return total


@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
def test_a_list_by_one_filter_or_by_a_status_and_a_queue_reads_few_of_many_rows(database_url: str, plans: str) -> None:
    lists.fill(database_url, 60_000)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(f"set plan_cache_mode = {plans}")  # type: ignore[arg-type]
        for question in lists.questions():
            given = {name for name, value in question.items() if value is not None}
            if len(given) == 1 or (given == {"status", "queue"} and question["queue"] != "far"):
                assert rows_read(connection, question) < 20_000, question


def test_a_client_returns_an_empty_page_only_at_the_end_of_the_list(database_url: str) -> None:
    lists.fill(database_url, 60_000)
    with Client(Settings(database_url=database_url)) as client:
        # Interleaved without an overlap: no index finds these, and one step is not enough.
        page = client.list(queue="common", model="common", tag="common")
        seen = len(page)
        while page.next_cursor is not None:
            assert page
            page = client.list(queue="common", model="common", tag="common", cursor=page.next_cursor)
            seen += len(page)
        assert seen == 5


def test_runs_of_a_job_are_listed_without_those_made_in_the_same_millisecond(database_url: str) -> None:
    with Client(Settings(database_url=database_url)) as client:
        from holdfast.jobs.facades import Jobs

        job = Jobs(client).create_job("a", tasks=[{"entrypoint": "mock", "kwargs": {"seconds": 0}} for _ in range(3)])
        other = Jobs(client).create_job("b", tasks=[{"entrypoint": "mock", "kwargs": {"seconds": 0}}])
        assert {run.job_id for run in client.list(job_id=job.id)} == {job.id}
        assert len(client.list(job_id=job.id, status="PENDING", queue="default")) == 3
        assert len(client.list(job_id=other.id, limit=1)) == 1
        assert client.list(job_id=other.id, limit=1).next_cursor is None
        with pytest.raises(BadInput, match="/job_id"):
            client.list(job_id="not an id")
