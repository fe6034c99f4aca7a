"""Roles that do not own the schema: each can do its work with the grants of `holdfast db grants`, and nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from holdfast import ops
from holdfast.client import AsyncClient, Client, shared
from holdfast.domain.errors import PrivilegeMissing
from holdfast.domain.states import Status
from holdfast.drivers.psycopg import transact
from holdfast.http import create_app
from holdfast.http.service import EXTENSION
from holdfast.jobs import sync
from holdfast.runtime.settings import Settings
from holdfast.schema import grants
from tests.integration.cli_support import Cli, InProcessShell
from tests.integration.test_schema_statements import STATEMENTS, variants
from tests.integration.test_worker_port import address, get
from tests.integration.worker_support import Stage, eventually

OWNERS = {"subscriptions.add", "subscriptions.remove", "tokens.create", "tokens.listing", "tokens.revoke"}
OF_TOKENS = {name for name in STATEMENTS if name.startswith("tokens.")}
OF_SUBSCRIPTIONS = {
    "deliveries.hold",
    *(name for name in STATEMENTS if name.startswith("subscriptions.") and "unaware" not in name),
}
OF_WORKERS = {
    "deliveries.delivered",
    "deliveries.forget",
    "deliveries.give_up",
    "deliveries.release",
    "deliveries.put_off",
    "deliveries.redeliver",
    "jobs.start_late",
    "leases.release",
    "leases.release_orphans",
    "leases.settle",
    "leases.settle_orphans",
    "leases.succeed",
    "logs.add",
    "outbox.fan_out",
    "partitions.drop",
    "partitions.make",
    "partitions.results_not_removed",
    "partitions.results_removed",
    "partitions.strays",
    "partitions.sweep",
    "ready.claim",
    "ready.claim_one",
    "remote_attempts.note",
    "rings.forget_single_workers",
    "tallies.fold",
    "waiting_workers.leave",
    "waiting_workers.wait",
    "workers.forget",
}
# Statements that a role may not execute. Add a new statement here for the roles that do not need it.
REFUSED = {
    "client": OF_WORKERS | OF_SUBSCRIPTIONS | OF_TOKENS,
    "api": OF_WORKERS | OF_SUBSCRIPTIONS | {"tokens.create", "tokens.revoke"},
    "worker": {"subscriptions.add", "subscriptions.remove"} | OF_TOKENS,
}


class Roles:
    """A role for each purpose, in one database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.names = {purpose: f"{urlsplit(url).path[1:]}_{purpose}"[-63:] for purpose in grants.PURPOSES}

    def of(self, purpose: str) -> str:
        """The URL of the database for this role."""
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        return parts._replace(netloc=f"{self.names[purpose]}@{host}").geturl()

    def owner(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)  # type: ignore[arg-type]


@pytest.fixture
def roles(database_url: str) -> Iterator[Roles]:
    roles = Roles(database_url)
    for purpose, name in roles.names.items():
        roles.owner(f'create role "{name}" login', *grants.statements(purpose, name))
    yield roles
    for name in roles.names.values():
        roles.owner(f'drop owned by "{name}"', f'drop role "{name}"')


def refused(url: str) -> set[str]:
    """Return the statements that a role may not execute: planning them raises an error."""
    found = set()
    with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        for name in STATEMENTS:
            for statement in variants(name):
                try:
                    connection.execute("explain " + statement.sql, dict.fromkeys(statement.params))
                except psycopg.errors.InsufficientPrivilege:
                    found.add(name)
    return found


def test_each_role_may_execute_its_statements_and_no_others(roles: Roles) -> None:
    assert {purpose: refused(roles.of(purpose)) for purpose in REFUSED} == REFUSED
    written = {name for name in STATEMENTS if not name.startswith(("tokens.", "subscriptions."))}
    assert refused(roles.of("client")) & written < refused(roles.of("reader"))


def test_a_reader_does_not_see_where_workers_are_notified(roles: Roles) -> None:
    """Any role can send a notification: if it knew the channel, it could hand a worker a run."""
    with psycopg.connect(roles.of("reader")) as reader, pytest.raises(psycopg.errors.InsufficientPrivilege):
        reader.execute("select channel from holdfast.waiting_workers")


@pytest.mark.parametrize("purpose", grants.PURPOSES)
def test_no_role_can_lease_a_run_to_a_waiting_worker_by_hand(roles: Roles, purpose: str) -> None:
    """A worker believes the claim that the function sends, so only functions of the owner may call it."""
    forged = "select holdfast.lease_to_waiting_worker(gen_random_uuid(), 'default', 'echo', '[]')"
    with psycopg.connect(roles.of(purpose)) as role, pytest.raises(psycopg.errors.InsufficientPrivilege):
        role.execute(forged)


def test_a_worker_and_a_client_without_ownership_do_everything(
    roles: Roles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = ("tests.integration.worker_tasks", "tests.integration.job_tasks")
    stage = Stage(roles.of("client"), tmp_path, tasks=tasks)
    worker = roles.names["worker"]
    roles.owner(
        "create table public.effects (attempt integer)", f'grant insert, select on public.effects to "{worker}"'
    )
    try:
        cancelled = stage.client.submit("echo", {"value": 0}, queue="nowhere")
        stage.client.cancel(cancelled)
        stage.client.pause_queue("later")
        stage.client.resume_queue("later")
        stage.start("--slots", "2", database_url=roles.of("worker"))
        runs = [stage.client.submit("echo", {"value": n}, key=f"key-{n}") for n in range(3)]
        again = stage.client.submit("echo", {"value": 0}, key="key-0")
        many = stage.client.submit_many("echo", [{"value": n} for n in range(20)])
        failing = stage.submit("fail", times=1)
        writing = stage.submit("writing", table="public.effects", fail_times=0)
        assert again.id == runs[0].id
        assert {stage.ended(run).status for run in (*runs, *many, failing, writing)} == {Status.SUCCEEDED}
        retried = stage.client.retry(cancelled)
        assert retried.status is Status.PENDING
        monkeypatch.delenv("HOLDFAST_TEST_RUN_DIRECTORY")
        for name in ("database_url", "artifacts"):
            monkeypatch.setenv(f"HOLDFAST_{name.upper()}", getattr(stage.settings, name))
        monkeypatch.setenv("HOLDFAST_TASKS", ",".join(tasks))
        note = {"entrypoint": "job.note", "kwargs": {"path": str(tmp_path / "notes"), "text": "a"}}
        job = sync.create_job("granted", [{**note, "key": "a"}, {**note, "depends_on": ["a"]}])
        assert sync.wait_for_job(job, 60).status == "SUCCEEDED"
        with Client(stage.settings) as reading:
            assert len(reading.list(limit=50)) > 20
    finally:
        shared.close()
        stage.close()


def test_worker_without_ownership_creates_and_drops_monthly_tables(roles: Roles) -> None:
    roles.owner(
        "set timezone = 'UTC'",
        "create table holdfast.runs_2020_01 partition of holdfast.runs for values from"
        " (holdfast.id_floor('2020-01-01 00:00+00')) to (holdfast.id_floor('2020-02-01 00:00+00'))",
        *(
            f"create table holdfast.{parent}_2020_01 partition of holdfast.{parent} for values from"
            " (holdfast.id_floor('2020-01-01 00:00+00')) to (holdfast.id_floor('2020-02-01 00:00+00'))"
            for parent in ("attempts", "events", "logs", "steps")
        ),
    )
    with psycopg.connect(roles.of("worker"), autocommit=True) as connection:
        transact(connection, ops.make_partitions)
        pruned = transact(connection, lambda: ops.prune(timedelta(days=90)))
        while pruned.more:
            pruned = transact(connection, lambda: ops.prune(timedelta(days=90)))
        left = connection.execute(
            "select count(*) from pg_class where relname like '%%\\_2020\\_01' and relkind = 'r'"
        ).fetchone()
    assert left == (0,)
    with psycopg.connect(roles.of("client")) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("select holdfast.drop_partitions(now())")


def test_roles_cannot_write_outside_their_purpose(roles: Roles) -> None:
    attempts = {
        "reader": "insert into holdfast.queues (name, created_at) values ('x', now())",
        "client": "delete from holdfast.attempts",
        "worker": "select digest from holdfast.tokens",
        "api": "update holdfast.tokens set scopes = '{admin}'",
    }
    for purpose, statement in attempts.items():
        with (
            psycopg.connect(roles.of(purpose)) as connection,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            connection.execute(statement)  # type: ignore[arg-type]
    with psycopg.connect(roles.of("client")) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("select secret from holdfast.subscriptions")


def test_a_worker_cannot_choose_the_table_that_is_dropped_after_a_month(roles: Roles) -> None:
    """The owner's function drops the table that a range names."""
    everything = "('00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff', 'attempts')"
    with psycopg.connect(roles.of("worker"), autocommit=True) as connection:
        for statement in (
            f"insert into holdfast.pruned_ranges (low, high, attempts) values {everything}",
            "update holdfast.pruned_ranges set attempts = 'attempts'",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)  # type: ignore[arg-type]
        connection.execute("select holdfast.sweep_pruned(1000)")
        assert connection.execute("select count(*) from holdfast.attempts").fetchone() == (0,)


@pytest.fixture
def shell(
    roles: Roles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> InProcessShell:
    return InProcessShell(tmp_path, {"database_url": roles.of("worker")}, monkeypatch, capsys)


def test_the_doctor_names_the_missing_privilege_and_the_statement_that_grants_it(
    roles: Roles, shell: InProcessShell
) -> None:
    worker = roles.names["worker"]

    def finding(*arguments: str, name: str = "privileges") -> tuple[str, str, str]:
        items = {item["name"]: item for item in shell("doctor", "--json", *arguments).json["items"]}
        return items[name]["state"], items[name]["detail"], items[name]["fix"] or ""

    assert finding()[:2] == ("ok", f"{worker} has all privileges for the purpose worker")
    assert finding(name="schema")[0] == finding(name="drift")[0] == "ok"
    roles.owner(f'revoke insert on holdfast.leases from "{worker}"')
    state, detail, fix = finding()
    assert (state, "insert on holdfast.leases" in detail) == ("fail", True)
    assert f'grant insert on table holdfast.leases to "{worker}";' in fix
    assert finding("--for", "reader")[0] == "ok"
    roles.owner(*shell.ok("db", "grants", "worker", worker).lines)
    assert finding()[0] == "ok"
    roles.owner(f'revoke usage on schema holdfast from "{worker}"')
    state, detail, fix = finding()
    assert (state, "usage on holdfast" in detail) == ("fail", True)


def test_a_worker_without_its_privileges_refuses_to_start_and_names_the_command(roles: Roles, tmp_path: Path) -> None:
    worker = roles.names["worker"]
    start = Cli(tmp_path, database_url=roles.of("worker"))
    command = f"holdfast db grants worker {worker}"
    for lacking, named in (
        (f'revoke insert on holdfast.leases from "{worker}"', "insert on holdfast.leases"),
        (f'revoke usage on schema holdfast from "{worker}"', "usage on holdfast"),
    ):
        roles.owner(lacking)
        said = start("worker", "--until-empty")
        assert said.code == 7
        assert all(part in said.err for part in (named, worker, command)), said.err
        assert "Traceback" not in said.err
        roles.owner(*grants.statements("worker", worker))
    assert start("worker", "--until-empty").code == 0


def test_a_worker_whose_round_trips_are_refused_is_not_ready_until_one_succeeds(roles: Roles, tmp_path: Path) -> None:
    worker = roles.names["worker"]
    stage = Stage(roles.of("client"), tmp_path)
    try:
        stage.start("--slots", "1", "--health-port", "0", database_url=roles.of("worker"))
        ready = f"{address(stage)}/readyz"
        eventually(lambda: get(ready)[0] == 200)
        roles.owner(f'revoke insert on holdfast.leases from "{worker}"')
        # Runs of a batch are claimed, not handed over, which does not need the privilege.
        (run,) = stage.client.submit_many("echo", [{"value": 1}])
        _, body = eventually(lambda: found if (found := get(ready))[0] == 503 else None)
        document = json.loads(body)
        assert document["checks"] == {"registered": "ok", "claiming": "down", "postgres": "ok"}
        assert "permission denied for table leases" in document["reasons"]["claiming"]
        roles.owner(f'grant insert on holdfast.leases to "{worker}"')
        assert stage.ended(run).status is Status.SUCCEEDED
        eventually(lambda: get(ready)[0] == 200)
    finally:
        stage.close()


def test_api_whose_role_lacks_a_privilege_is_not_ready(roles: Roles) -> None:
    for purpose, status in (("client", 503), ("api", 200)):
        app = create_app(Settings(database_url=roles.of(purpose)))
        ready = app.test_client().get("/readyz")
        assert (ready.status_code, ready.json["checks"]["postgres"]) == (status, "ok" if status == 200 else "down")
        app.extensions[EXTENSION].close()


def test_permission_denied_names_the_role_and_the_command_that_grants(roles: Roles, shell: InProcessShell) -> None:
    reader = roles.names["reader"]
    expected = f"permission denied for function create_run: the role {reader} lacks a privilege"
    command = f"holdfast db grants client {reader}"
    here_as_reader = {"HOLDFAST_DATABASE_URL": roles.of("reader")}
    said = shell("submit", "mock", "-p", "seconds=0", env=here_as_reader)
    assert said.code == 7
    assert expected in said.err
    assert command in said.err
    settings = Settings(database_url=roles.of("reader"))
    with Client(settings) as client, pytest.raises(PrivilegeMissing, match=expected) as caught:
        client.submit("mock", {"seconds": 0})
    assert command in str(caught.value)

    own_connection = psycopg.connect(roles.of("reader"))
    with Client(settings) as client, own_connection as own, pytest.raises(PrivilegeMissing, match=expected):
        client.on(own).submit("mock", {"seconds": 0})

    async def submit() -> None:
        async with AsyncClient(settings) as client:
            await client.submit("mock", {"seconds": 0})

    async def submit_on_own_connection() -> None:
        own = await psycopg.AsyncConnection.connect(roles.of("reader"))
        async with own, AsyncClient(settings) as client:
            await client.on(own).submit("mock", {"seconds": 0})

    for submitting in (submit, submit_on_own_connection):
        with pytest.raises(PrivilegeMissing, match=expected):
            asyncio.run(submitting())
    app = create_app(settings)
    refused = app.test_client().post("/runs", json={"model": "mock", "parameters": {"seconds": 0}})
    app.extensions[EXTENSION].close()
    assert (refused.status_code, refused.json["type"]) == (503, "/problems/privilege-missing")
    assert reader not in refused.text
    said = shell("tokens", "create", "ci", env=here_as_reader)
    assert (said.code, "the schema's owner" in said.err, reader in said.err) == (7, True, True), said.err
    roles.owner(f'revoke usage on schema holdfast from "{reader}"')
    said = shell("runs", "list", env=here_as_reader)
    assert said.code == 7
    assert f"permission denied for schema holdfast: the role {reader}" in said.err


def test_a_role_name_with_special_characters_is_quoted(roles: Roles, shell: InProcessShell) -> None:
    lines = shell.ok("db", "grants", "reader", 'odd "name"; drop table x').lines
    assert all('to "odd ""name""; drop table x";' in line for line in lines)
    with suppress(psycopg.errors.UndefinedObject):
        roles.owner(lines[0])


def test_every_table_is_granted_to_some_purpose(database_url: str) -> None:
    given = {grant.name.removeprefix("holdfast.") for purpose in grants.PURPOSES for grant in grants.grants(purpose)}
    with psycopg.connect(database_url) as connection:
        query = sql.SQL(
            "select relname from pg_class where relnamespace = 'holdfast'::regnamespace and relkind in ('r', 'p', 'v')"
            " and relname !~ '_[0-9]{4}_[0-9]{2}$'"
        )
        tables = {row[0] for row in connection.execute(query)}
    assert tables <= given
