"""Server errors are not errors of a run: every statement is retried after one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast.domain.states import Status
from tests.integration.worker_support import Stage, eventually

# One of each class of errors that are not caused by the statement.
STATES = {
    "08006": "connection failure",
    "25006": "read-only transaction",
    "40001": "serialization failure",
    "40P01": "deadlock",
    "42501": "missing privilege",
    "53100": "disk full",
    "53300": "too many connections",
    "55P03": "lock timeout",
    "57014": "statement cancelled",
    "57P01": "shutdown",
    "58030": "input/output error",
    "0A000": "changed plan",
    "XX000": "internal error",
}
# The table and command that a worker's statements use first: register and renew, claim, settle, retry, count.
WRITES = {
    "workers": "insert or update",
    "ready": "insert or delete",
    "leases": "insert or delete",
    "attempts": "insert",
    "tallies": "insert",
}
INJECT = """
    create sequence public.faults;
    create function public.inject() returns trigger language plpgsql as $$
    begin
        if nextval('public.faults') %% {spared} <> 0 and currval('public.faults') <= {most} then
            raise exception using errcode = '{state}', message = 'injected';
        end if;
        return null;
    end $$;
"""
TRIGGER = """
    create trigger inject before {commands} on holdfast.{table} for each statement execute function inject();
"""


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(database_url, tmp_path)
    yield stage
    stage.close()


def inject(stage: Stage, state: str, tables: dict[str, str], most: int, spared: int = 3) -> None:
    """Make statements on these tables fail, except every third, up to `most` times."""
    with psycopg.connect(stage.url, autocommit=True) as connection:
        connection.execute(INJECT.replace("%%", "%").format(state=state, most=most, spared=spared))
        for table, commands in tables.items():
            connection.execute(TRIGGER.format(table=table, commands=commands))


@pytest.mark.parametrize("state", STATES, ids=STATES.values())
def test_server_error_does_not_fail_a_run(stage: Stage, state: str) -> None:
    runs = [stage.submit("echo", value=n) for n in range(20)]
    again = [stage.submit("fail", times=1) for _ in range(3)]
    with stage.worker():
        eventually(lambda: stage.query("select count(*) from holdfast.workers") == [(1,)])
        inject(stage, state, WRITES, most=24)
        ended = [stage.ended(run) for run in runs]
        retried = [stage.ended(run) for run in again]
    assert [(run.status, run.attempt_count) for run in ended] == [(Status.SUCCEEDED, 1)] * 20
    assert [(run.status, run.attempt_count) for run in retried] == [(Status.SUCCEEDED, 2)] * 3
    assert stage.query("select count(*) from holdfast.leases") == [(0,)]


@pytest.mark.parametrize("state", ["25006", "40001", "53300", "57P01"])
def test_worker_registers_again_despite_server_errors(stage: Stage, state: str) -> None:
    """A worker that lost its lease in a failover longer than the lease starts over as soon as it can."""
    with stage.worker() as worker:
        stage.ended(stage.submit("echo", value=1))
        first = worker.id
        inject(stage, state, {"workers": "insert or update"}, most=1_000_000, spared=1_000_000)
        eventually(lambda: worker.id != first)
        stage.query("drop trigger inject on holdfast.workers")
        assert stage.ended(stage.submit("echo", value=2)).result() == 2


@pytest.mark.parametrize("state", ["25006", "55P03", "XX000"])
def test_rescue_succeeds_despite_server_errors(stage: Stage, state: str) -> None:
    run = stage.submit("patient", started=str(stage.file("started")), until=str(stage.file("gate")))
    process = stage.start()
    stage.said("started")
    process.kill()
    stage.file("gate").touch()
    with stage.worker():
        eventually(lambda: stage.query("select count(*) from holdfast.workers") == [(2,)])
        inject(stage, state, {"leases": "delete"}, most=6)
        assert stage.ended(run).attempt_count == 2


def test_only_a_value_that_cannot_be_stored_fails_its_run(stage: Stage) -> None:
    """One result that the server rejects because of its value, among others that it accepts."""
    with psycopg.connect(stage.url, autocommit=True) as connection:
        connection.execute(
            """
            create function refuse_value() returns trigger language plpgsql as $$
            begin
                if new.result::text = '13' then
                    raise exception using errcode = '22P05', message = 'untranslatable';
                end if;
                return new;
            end $$;
            create trigger refuse_value before insert on holdfast.attempts for each row execute function refuse_value();
            """
        )
    runs = [stage.submit("echo", value=n) for n in range(10, 16)]
    with stage.worker():
        ended = {run.parameters["value"]: stage.ended(run) for run in runs}
    assert ended.pop(13).status is Status.FAILED
    assert {run.status for run in ended.values()} == {Status.SUCCEEDED}


UNREADABLE = ['{"backoff": "linear"}', '{"max_attempts": "many"}', '{"delays": {}}', '{"timeout": "soon"}', "[]", "7"]


@pytest.mark.parametrize("policy", UNREADABLE)
def test_unreadable_policy_leaves_no_run_stuck(stage: Stage, policy: str) -> None:
    """As a newer version might have written it: the default policy applies, and other runs are not affected."""
    odd = stage.submit("fail", times=1)
    others = [stage.submit("echo", value=n) for n in range(5)]
    with psycopg.connect(stage.url, autocommit=True) as connection:
        connection.execute("alter table holdfast.runs disable trigger user")
        connection.execute("update holdfast.runs set policy = %s where id = %s", [policy, odd.id])
        connection.execute("alter table holdfast.runs enable trigger user")
    with stage.worker():
        assert [stage.ended(run).status for run in others] == [Status.SUCCEEDED] * 5
        eventually(lambda: [a.status for a in stage.client.attempts(odd)][:1] == ["FAILED"])
        assert stage.client.get(odd).status is Status.PENDING
    assert len(stage.client.list()) == 6
    assert stage.client.why(odd)


@pytest.mark.parametrize("policy", UNREADABLE)
def test_a_rescue_handles_an_unreadable_policy(stage: Stage, policy: str) -> None:
    runs = [stage.submit("patient", started=str(stage.file("started"))) for _ in range(2)]
    process = stage.start("--slots", "2")
    stage.said("started", 2)
    with psycopg.connect(stage.url, autocommit=True) as connection:
        connection.execute("alter table holdfast.runs disable trigger user")
        connection.execute("update holdfast.runs set policy = %s where id = %s", [policy, runs[0].id])
        connection.execute("alter table holdfast.runs enable trigger user")
    process.kill()
    with stage.worker(slots=2):
        eventually(lambda: [stage.client.get(run).attempt_count for run in runs] == [2, 2])
