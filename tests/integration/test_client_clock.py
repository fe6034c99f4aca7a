"""A client whose clock is far off generates ids that sort correctly among others."""

from __future__ import annotations

import subprocess
import sys

import psycopg
import pytest

SUBMIT = """
import time
real = time.time_ns
time.time_ns = lambda: real() + {days} * 24 * 3600 * 10**9
from holdfast import Client
with Client() as client:
    print(client.submit("mock").id)
"""


@pytest.mark.parametrize("days", [400, -400])
def test_a_run_of_a_client_whose_clock_is_far_off_is_stored_in_the_current_month(database_url: str, days: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SUBMIT.format(days=days)],
        env={"HOLDFAST_DATABASE_URL": database_url, "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    with psycopg.connect(database_url) as connection:
        found = connection.execute(
            "select runs.id::text, pg_class.relname, to_char(now() at time zone 'UTC', 'YYYY_MM')"
            " from holdfast.runs join pg_class on pg_class.oid = runs.tableoid"
        ).fetchone()
    assert found is not None
    assert found[0] == done.stdout.strip()
    assert found[1] == f"runs_{found[2]}"
