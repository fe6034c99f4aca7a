"""holdfast doctor: each thing that can be wrong is named, with the way to fix it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.schema import migrate
from tests.integration.cli_support import Cli, Inside

AWAY = {"HOLDFAST_DATABASE_URL": "postgresql://me:hunter2@127.0.0.1:1/x"}


@pytest.fixture
def here(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Inside:
    return Inside(tmp_path, {"database_url": database_url}, monkeypatch, capsys)


def findings(here: Inside, **env: str) -> dict[str, dict[str, Any]]:
    answer = here("doctor", "--json", env=env)
    found = {item["name"]: item for item in answer.json["items"]}
    failed = [name for name, item in found.items() if item["state"] == "fail"]
    assert answer.code == (1 if failed else 0)
    assert answer.json["healthy"] is not bool(failed)
    assert all(item["fix"] for item in found.values() if item["state"] in ("warn", "fail"))
    return found


@contextmanager
def connected(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def test_a_sound_place_is_told_line_by_line(here: Inside) -> None:
    found = findings(here)
    # The server of the tests does without fsync, and nobody works here: all else is in order.
    states = {name: item["state"] for name, item in found.items()}
    assert states.pop("durability") in ("ok", "fail")
    assert states.pop("workers") == "warn"
    assert set(states.values()) == {"ok"}, found
    lines = here("doctor").lines
    assert lines[0].startswith("ok    python")
    assert any(line.startswith("warn  workers") for line in lines)
    assert not (here.directory / "artifacts").exists()


def test_a_slow_idle_poll_is_reported(here: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings(here)["idle poll"]["state"] == "ok"
    monkeypatch.setattr("holdfast.doctor.work.SLOW_LOOK_SECONDS", 0.0)
    found = findings(here)["idle poll"]
    assert (found["state"], "slow" in found["detail"], "vacuum" in found["fix"]) == ("warn", True, True)


def test_a_pooler_is_reported(here: Inside, pooled_url: str) -> None:
    found = findings(here, HOLDFAST_DATABASE_URL=pooled_url)
    assert (found["pooler"]["state"], "workers poll" in found["pooler"]["detail"]) == ("ok", True)
    assert (found["doorbell"]["state"], "pooler" in found["doorbell"]["detail"]) == ("warn", True)
    unknown = findings(here, HOLDFAST_DATABASE_URL=pooled_url, HOLDFAST_POOLER="off")
    assert unknown["pooler"]["state"] == "warn"


def test_an_unreachable_database_stops_the_questions_but_not_the_answers(here: Inside) -> None:
    found = findings(here, **AWAY)
    assert found["database"]["state"] == "fail"
    assert found["the rest"]["state"] == "skip"
    assert found["artifacts"]["state"] == "ok"
    assert "hunter2" not in str(found)


@pytest.mark.parametrize(
    ("env", "name", "told"),
    [
        ({"HOLDFAST_LEASE_SECOND": "3"}, "settings", "did you mean HOLDFAST_LEASE_SECONDS?"),
        ({"HOLDFAST_TASKS": "no.such.module"}, "tasks", "cannot be loaded"),
        ({"HOLDFAST_ARTIFACTS": "/proc/nowhere"}, "artifacts", "/proc/nowhere"),
        ({"HOLDFAST_ARTIFACTS": "gopher://x"}, "artifacts", "gopher://x"),
        ({"HOLDFAST_DOORBELL": "redis"}, "settings", "HOLDFAST_REDIS_URL"),
        ({"HOLDFAST_REDIS_URL": "redis://:hunter2@127.0.0.1:1/0"}, "redis", "redis://:********@127.0.0.1:1/0"),
    ],
)
def test_what_is_wrong_on_this_machine(here: Inside, env: dict[str, str], name: str, told: str) -> None:
    found = findings(here, **(AWAY | env))
    assert found[name]["state"] == "fail"
    assert told in found[name]["detail"]
    assert "hunter2" not in str(found)


def test_a_full_disk_wants_room_and_not_rights(here: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Path, "write_bytes", full)
    found = findings(here)["artifacts"]
    assert "No space left on device" in found["detail"]
    assert found["fix"] == "free some space, or set HOLDFAST_ARTIFACTS to a location with more space"


def test_broken_tasks_are_told_once_and_the_database_is_examined_all_the_same(here: Inside) -> None:
    found = findings(here, HOLDFAST_TASKS="no.such.module")
    assert [name for name, item in found.items() if "no.such.module" in item["detail"]] == ["tasks"]
    assert found["database"]["state"] == found["schema"]["state"] == "ok"


def test_a_database_that_breaks_on_the_way_is_a_finding(here: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.runtime import runtime

    def break_down(*args: object, **kwargs: object) -> None:
        raise RuntimeError("the migration broke")

    monkeypatch.setattr(runtime.Runtime, "__init__", break_down)
    found = findings(here)
    assert "RuntimeError: the migration broke" in found["database"]["detail"]
    assert found["the rest"]["state"] == "skip"


@pytest.mark.parametrize(("step", "state"), [(-1, "fail"), (1, "warn"), (2, "fail")])
def test_a_schema_older_or_newer_than_the_code(here: Inside, database_url: str, step: int, state: str) -> None:
    with connected(database_url) as connection:
        connection.execute("update holdfast.migration set version_num = %s", [f"{int(migrate.latest()) + step:04}"])
    found = findings(here)
    assert found["schema"]["state"] == state
    assert ("work" in found) == (state == "fail")
    if state == "warn":
        assert found["drift"]["state"] == "skip"


def test_drift_and_missing_partitions(here: Inside, database_url: str) -> None:
    with connected(database_url) as connection:
        connection.execute("drop index holdfast.waiting_due")
        suffix = connection.execute("select to_char(now() at time zone 'UTC', '_YYYY_MM')").fetchone()
        assert suffix is not None
        connection.execute(f"drop table holdfast.steps{suffix[0]}")
    found = findings(here)
    assert "waiting_due" in found["drift"]["detail"]
    assert f"steps{suffix[0]}" in found["partitions"]["detail"]


def test_runs_that_wait_for_nobody(here: Inside) -> None:
    here.submit("--queue", "lonely")
    found = findings(here)
    assert found["queues"]["state"] == "fail"
    assert "lonely (1 ready" in found["queues"]["detail"]
    assert found["queues"]["fix"] == "start one: holdfast worker --queues lonely"
    here.ok("queues", "pause", "lonely")
    assert findings(here)["queues"]["state"] == "warn"


def test_a_lease_that_nobody_rescued_and_a_run_that_nobody_queued(here: Inside, database_url: str) -> None:
    late = here.submit("--run-after", "1h")
    with connected(database_url) as connection:
        connection.execute(
            "update holdfast.waiting set due_at = now() - interval '2 minutes' where run_id = %s", [late]
        )
    assert "1 runs are due" in findings(here)["stuck runs"]["detail"]
    lost = here.submit()
    with connected(database_url) as connection:
        connection.execute(
            """
            insert into holdfast.workers (id, started_at, heartbeat_at, expires_at, pid, slots, lease, hostname, name,
                                          executor, version)
            values ('00000000-0000-7000-8000-000000000001', now(), now() - interval '5 minutes',
                    now() - interval '4 minutes', 1, 1, '1 minute', 'h', 'gone', 'process', '0')
            """
        )
        connection.execute("alter table holdfast.leases disable trigger user")
        connection.execute(
            """
            with taken as (delete from holdfast.ready where run_id = %s returning run_id, number)
            insert into holdfast.leases (run_id, worker_id, claimed_at, number)
            select run_id, '00000000-0000-7000-8000-000000000001', now() - interval '5 minutes', number from taken
            """,
            [lost],
        )
    assert "1 runs hold expired leases" in findings(here)["stuck runs"]["detail"]


def test_a_transaction_that_keeps_dead_rows(here: Inside, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import timedelta

    from holdfast.doctor import work

    monkeypatch.setattr(work, "LONG_TRANSACTION", timedelta(0))
    with psycopg.connect(database_url, application_name="a forgotten shell") as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select 1")
        assert "a forgotten shell" in findings(here)["vacuum"]["detail"]


def test_without_a_database_the_embedded_one_is_examined(home: Path, tmp_path: Path) -> None:
    answer = Cli(tmp_path, home=str(home))("doctor", "--json")
    found = {item["name"]: item for item in answer.json["items"]}
    assert answer.code == 0, found
    assert found["durability"]["state"] == "ok"
    assert str(home) in found["embedded server"]["detail"]
