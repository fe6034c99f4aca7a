"""holdfast doctor: every problem is reported, with a way to fix it."""

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
from tests.integration.cli_support import Cli, InProcessShell

AWAY = {"HOLDFAST_DATABASE_URL": "postgresql://me:hunter2@127.0.0.1:1/x"}


@pytest.fixture
def shell(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> InProcessShell:
    return InProcessShell(tmp_path, {"database_url": database_url}, monkeypatch, capsys)


def findings(shell: InProcessShell, **env: str) -> dict[str, dict[str, Any]]:
    answer = shell("doctor", "--json", env=env)
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


def test_doctor_reports_each_check_of_a_healthy_system(shell: InProcessShell) -> None:
    found = findings(shell)
    # The server of the tests runs without fsync, and there is no worker; everything else is in order.
    states = {name: item["state"] for name, item in found.items()}
    assert states.pop("durability") in ("ok", "fail")
    assert states.pop("workers") == "warn"
    assert set(states.values()) == {"ok"}, found
    lines = shell("doctor").lines
    assert lines[0].startswith("ok    python")
    assert any(line.startswith("warn  workers") for line in lines)
    assert not (shell.directory / "artifacts").exists()


def test_a_slow_idle_poll_is_reported(shell: InProcessShell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings(shell)["idle poll"]["state"] == "ok"
    monkeypatch.setattr("holdfast.doctor.work.SLOW_LOOK_SECONDS", 0.0)
    found = findings(shell)["idle poll"]
    assert (found["state"], "slow" in found["detail"], "vacuum" in found["fix"]) == ("warn", True, True)


def test_a_pooler_is_reported(shell: InProcessShell, pooled_url: str) -> None:
    found = findings(shell, HOLDFAST_DATABASE_URL=pooled_url)
    assert (found["pooler"]["state"], "workers poll" in found["pooler"]["detail"]) == ("ok", True)
    assert (found["doorbell"]["state"], "pooler" in found["doorbell"]["detail"]) == ("warn", True)
    unknown = findings(shell, HOLDFAST_DATABASE_URL=pooled_url, HOLDFAST_POOLER="off")
    assert unknown["pooler"]["state"] == "warn"


def test_doctor_reports_other_checks_if_the_database_is_unreachable(shell: InProcessShell) -> None:
    found = findings(shell, **AWAY)
    assert found["database"]["state"] == "fail"
    assert found["the rest"]["state"] == "skip"
    assert found["artifacts"]["state"] == "ok"
    assert "hunter2" not in str(found)


@pytest.mark.parametrize(
    ("env", "name", "message"),
    [
        ({"HOLDFAST_LEASE_SECOND": "3"}, "settings", "did you mean HOLDFAST_LEASE_SECONDS?"),
        ({"HOLDFAST_TASKS": "no.such.module"}, "tasks", "cannot be loaded"),
        ({"HOLDFAST_ARTIFACTS": "/proc/nowhere"}, "artifacts", "/proc/nowhere"),
        ({"HOLDFAST_ARTIFACTS": "gopher://x"}, "artifacts", "gopher://x"),
        ({"HOLDFAST_DOORBELL": "redis"}, "settings", "HOLDFAST_REDIS_URL"),
        ({"HOLDFAST_REDIS_URL": "redis://:hunter2@127.0.0.1:1/0"}, "redis", "redis://:********@127.0.0.1:1/0"),
    ],
)
def test_doctor_reports_problems_of_this_machine(
    shell: InProcessShell, env: dict[str, str], name: str, message: str
) -> None:
    found = findings(shell, **(AWAY | env))
    assert found[name]["state"] == "fail"
    assert message in found[name]["detail"]
    assert "hunter2" not in str(found)


def test_doctor_distinguishes_a_full_disk_from_missing_permissions(
    shell: InProcessShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Path, "write_bytes", full)
    found = findings(shell)["artifacts"]
    assert "No space left on device" in found["detail"]
    assert found["fix"] == "free some space, or set HOLDFAST_ARTIFACTS to a location with more space"


def test_broken_task_modules_are_reported_once_and_the_database_is_still_checked(shell: InProcessShell) -> None:
    found = findings(shell, HOLDFAST_TASKS="no.such.module")
    assert [name for name, item in found.items() if "no.such.module" in item["detail"]] == ["tasks"]
    assert found["database"]["state"] == found["schema"]["state"] == "ok"


def test_database_error_during_the_checks_is_reported(shell: InProcessShell, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.runtime import runtime

    def break_down(*args: object, **kwargs: object) -> None:
        raise RuntimeError("the migration broke")

    monkeypatch.setattr(runtime.Runtime, "__init__", break_down)
    found = findings(shell)
    assert "RuntimeError: the migration broke" in found["database"]["detail"]
    assert found["the rest"]["state"] == "skip"


@pytest.mark.parametrize(("step", "state"), [(-1, "fail"), (1, "warn"), (2, "fail")])
def test_doctor_reports_a_schema_older_or_newer_than_the_code(
    shell: InProcessShell, database_url: str, step: int, state: str
) -> None:
    with connected(database_url) as connection:
        connection.execute("update holdfast.migration set version_num = %s", [f"{int(migrate.latest()) + step:04}"])
    found = findings(shell)
    assert found["schema"]["state"] == state
    assert ("work" in found) == (state == "fail")
    if state == "warn":
        assert found["drift"]["state"] == "skip"


def test_doctor_reports_drift_and_missing_partitions(shell: InProcessShell, database_url: str) -> None:
    with connected(database_url) as connection:
        connection.execute("drop index holdfast.waiting_due")
        suffix = connection.execute("select to_char(now() at time zone 'UTC', '_YYYY_MM')").fetchone()
        assert suffix is not None
        connection.execute(f"drop table holdfast.steps{suffix[0]}")
    found = findings(shell)
    assert "waiting_due" in found["drift"]["detail"]
    assert f"steps{suffix[0]}" in found["partitions"]["detail"]


def test_doctor_reports_runs_without_a_worker(shell: InProcessShell) -> None:
    shell.submit("--queue", "lonely")
    found = findings(shell)
    assert found["queues"]["state"] == "fail"
    assert "lonely (1 ready" in found["queues"]["detail"]
    assert found["queues"]["fix"] == "start one: holdfast worker --queues lonely"
    shell.ok("queues", "pause", "lonely")
    assert findings(shell)["queues"]["state"] == "warn"


def test_doctor_reports_unrescued_leases_and_unqueued_runs(shell: InProcessShell, database_url: str) -> None:
    late = shell.submit("--run-after", "1h")
    with connected(database_url) as connection:
        connection.execute(
            "update holdfast.waiting set due_at = now() - interval '2 minutes' where run_id = %s", [late]
        )
    assert "runs that are due but not queued: 1" in findings(shell)["stuck runs"]["detail"]
    lost = shell.submit()
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
    assert "runs with an expired lease: 1" in findings(shell)["stuck runs"]["detail"]


def test_doctor_reports_a_transaction_that_holds_back_vacuum(
    shell: InProcessShell, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datetime import timedelta

    from holdfast.doctor import work

    monkeypatch.setattr(work, "LONG_TRANSACTION", timedelta(0))
    with psycopg.connect(database_url, application_name="a forgotten shell") as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select 1")
        assert "a forgotten shell" in findings(shell)["vacuum"]["detail"]


def test_doctor_checks_the_embedded_server_if_no_database_is_configured(home: Path, tmp_path: Path) -> None:
    answer = Cli(tmp_path, home=str(home))("doctor", "--json")
    found = {item["name"]: item for item in answer.json["items"]}
    assert answer.code == 0, found
    assert found["durability"]["state"] == "ok"
    assert str(home) in found["embedded server"]["detail"]
