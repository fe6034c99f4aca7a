"""Server errors are not errors of a run: every statement is retried after one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast.client import Run
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
# One test covers several, because starting a worker and its child for each would take most of the time.
GROUPS = (
    ("08006", "25006", "57P01", "53300"),
    ("40001", "40P01", "55P03", "57014"),
    ("42501", "53100", "58030", "0A000", "XX000"),
)
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


def stop_injecting(stage: Stage, tables: dict[str, str]) -> None:
    for table in tables:
        stage.query(f"drop trigger inject on holdfast.{table}")
    stage.query("drop function public.inject")
    stage.query("drop sequence public.faults")


def test_every_error_is_in_one_group() -> None:
    assert sorted(state for states in GROUPS for state in states) == sorted(STATES)


@pytest.mark.parametrize("states", GROUPS, ids=" ".join)
def test_server_error_does_not_fail_a_run(stage: Stage, states: tuple[str, ...]) -> None:
    with stage.worker(slots=2):
        for state in states:
            stage.client.pause_queue("default")
            runs = [stage.submit("echo", value=n) for n in range(20)]
            again = [stage.submit("fail", times=1) for _ in range(3)]
            inject(stage, state, WRITES, most=24)
            stage.client.resume_queue("default")
            ended = [stage.ended(run) for run in runs]
            retried = [stage.ended(run) for run in again]
            stop_injecting(stage, WRITES)
            named = STATES[state]
            assert [(run.status, run.attempt_count) for run in ended] == [(Status.SUCCEEDED, 1)] * 20, named
            assert [(run.status, run.attempt_count) for run in retried] == [(Status.SUCCEEDED, 2)] * 3, named
            assert stage.query("select count(*) from holdfast.leases") == [(0,)], named


@pytest.mark.parametrize("state", ["25006", "40001", "53300", "57P01"])
def test_worker_registers_again_despite_server_errors(stage: Stage, state: str) -> None:
    """A worker that lost its lease in a failover longer than the lease starts over as soon as it can."""
    with stage.worker("inline") as worker:
        stage.ended(stage.submit("echo", value=1))
        first = worker.id
        inject(stage, state, {"workers": "insert or update"}, most=1_000_000, spared=1_000_000)
        eventually(lambda: worker.id != first)
        stage.query("drop trigger inject on holdfast.workers")
        assert stage.ended(stage.submit("echo", value=2)).result() == 2


@pytest.mark.parametrize("state", ["25006", "55P03", "XX000"])
def test_rescue_succeeds_despite_server_errors(stage: Stage, state: str) -> None:
    run = stage.submit("patient", started=str(stage.file("started")), until=str(stage.file("gate")))
    process = stage.start("--slots", "1")
    stage.said("started")
    process.kill()
    stage.file("gate").touch()
    with stage.worker("inline"):
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


def store_policy(stage: Stage, run: Run, policy: str) -> None:
    """Store a policy as a newer version might have written it."""
    with psycopg.connect(stage.url) as connection:
        connection.execute("alter table holdfast.runs disable trigger user")
        connection.execute("update holdfast.runs set policy = %s where id = %s", [policy, run.id])
        connection.execute("alter table holdfast.runs enable trigger user")


def test_unreadable_policy_leaves_no_run_stuck(stage: Stage) -> None:
    """The default policy applies, and other runs are not affected."""
    odd = [stage.submit("fail", times=1) for _ in UNREADABLE]
    others = [stage.submit("echo", value=n) for n in range(5)]
    for run, policy in zip(odd, UNREADABLE, strict=True):
        store_policy(stage, run, policy)
    with stage.worker():
        assert [stage.ended(run).status for run in others] == [Status.SUCCEEDED] * 5
        for run, policy in zip(odd, UNREADABLE, strict=True):
            eventually(lambda run=run: [a.status for a in stage.client.attempts(run)][:1] == ["FAILED"])
            assert stage.client.get(run).status is Status.PENDING, policy
    assert len(stage.client.list()) == len(odd) + len(others)
    assert all(stage.client.why(run) for run in odd)


def test_rescued_run_with_an_unreadable_policy_is_attempted_again(stage: Stage) -> None:
    gate = stage.file("gate")
    parameters = {"started": str(stage.file("started")), "until": str(gate)}
    runs = [stage.submit("patient", **parameters) for _ in range(len(UNREADABLE) + 1)]
    process = stage.start("--slots", str(len(runs)))
    stage.said("started", len(runs))
    for run, policy in zip(runs, UNREADABLE, strict=False):
        store_policy(stage, run, policy)
    process.kill()
    gate.touch()
    with stage.worker("inline"):
        assert [stage.ended(run).attempt_count for run in runs] == [2] * len(runs)
