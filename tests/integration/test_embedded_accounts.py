"""The account of the embedded server: PostgreSQL refuses to run as root, and the files must keep their owner."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.embedded import account, ensure_running, places
from holdfast.embedded.places import Places
from tests.integration.embedded_support import USER, execute, leave, line, postmaster, runs

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become others")

BECOME = """
import importlib, os, sys
import psycopg
from pathlib import Path
from holdfast.domain.errors import ConfigurationError
from holdfast.embedded import ensure_running
# What is loaded late lies in places that only root may read, perhaps.
for name in ("encodings.idna", "psycopg_binary", "pwd"):
    importlib.import_module(name)
uid = int(sys.argv.pop(2))
os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
"""

Spawn = Callable[..., subprocess.Popen[str]]


def server_uid(home: Path) -> int:
    return Path(f"/proc/{postmaster(home)}").stat().st_uid


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Allow a single way of running the server, as on machines that forbid the others."""
    works = account.works

    def limit(kind: str) -> None:
        def limited(identity: account.Identity | None, binaries: Path) -> bool:
            return identity is not None and identity.kind == kind and works(identity, binaries)

        monkeypatch.setattr(account, "works", limited)

    return limit


@pytest.fixture
def closed(home: Path) -> Path:
    """A home inside a directory that only its owner may enter."""
    home.mkdir(mode=0o700)
    return home / "home"


@pytest.fixture
def reachable_programs() -> None:
    if not account.reachable(places.binaries(), account.SERVER_UID, account.SERVER_UID):
        pytest.skip("the installed PostgreSQL lies in a directory that other users cannot enter")


@as_root
@pytest.mark.usefixtures("reachable_programs")
def test_root_runs_the_server_under_a_separate_account(home: Path) -> None:
    with ensure_running(home, durable=False) as server:
        assert execute(server.url, "select 1") == [(1,)]
        assert server_uid(home) == account.SERVER_UID
        assert Places(home).data.stat().st_uid == account.SERVER_UID


@as_root
@pytest.mark.parametrize("way", ["namespace", "override"])
def test_root_runs_the_server_in_a_private_directory(closed: Path, only: Callable[[str], None], way: str) -> None:
    only(way)
    for _ in ("made", "found"):
        with ensure_running(closed, durable=False) as server:
            assert execute(server.url, "select 1") == [(1,)]
    assert closed.parent.stat().st_mode & 0o077 == 0
    assert not runs(closed)


@as_root
def test_data_is_kept_when_root_starts_the_server_in_another_way(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    works = account.works
    for number, way in enumerate(["namespace", "override", "namespace"]):
        monkeypatch.setattr(
            account, "works", lambda identity, programs, way=way: identity.kind == way and works(identity, programs)
        )
        with ensure_running(closed, durable=False) as server:
            execute(server.url, "create table if not exists kept (number int)")
            execute(server.url, f"insert into kept values ({number})")
            assert execute(server.url, "select count(*) from kept") == [(number + 1,)]


@as_root
@pytest.mark.usefixtures("reachable_programs")
def test_ordinary_user_runs_the_server_under_their_own_account(home: Path, spawn: Spawn) -> None:
    user = pwd.getpwnam("nobody").pw_uid
    home.mkdir()
    os.chown(home, user, -1)
    ordinary = spawn(BECOME + USER, home, str(user))
    url = line(ordinary)
    assert execute(url, "select 1") == [(1,)]
    assert server_uid(home) == user
    leave(ordinary)
    assert not runs(home)


@as_root
@pytest.mark.usefixtures("reachable_programs")
def test_user_id_without_a_name_can_run_the_server(home: Path, spawn: Spawn) -> None:
    # The launcher has to run under this id, and the interpreter may be in a directory that only root can enter.
    user = "sys.executable = '/usr/bin/python3'\n" + USER
    if not Path("/usr/bin/python3").exists():
        pytest.skip("no interpreter that every user can run")
    home.mkdir()
    os.chown(home, 54321, -1)
    nameless = spawn(BECOME + user, home, "54321")
    assert execute(line(nameless), "select 1") == [(1,)]
    leave(nameless)


@as_root
@pytest.mark.usefixtures("reachable_programs")
def test_root_runs_the_server_in_another_users_home_as_that_user(home: Path, spawn: Spawn) -> None:
    user = pwd.getpwnam("nobody").pw_uid
    home.mkdir(mode=0o700)
    os.chown(home, user, -1)
    with ensure_running(home, durable=False) as server:
        assert server_uid(home) == user
        execute(server.url, "create table kept as select 42 as answer")
        ordinary = spawn(BECOME + USER, home, str(user))
        assert line(ordinary) == server.url
        leave(ordinary)
    ordinary = spawn(BECOME + USER, home, str(user))
    assert execute(line(ordinary), "table kept") == [(42,)]
    leave(ordinary)


@as_root
@pytest.mark.usefixtures("reachable_programs")
def test_home_of_another_user_is_refused_with_advice(home: Path, spawn: Spawn) -> None:
    with ensure_running(home, durable=False):
        pass
    user = pwd.getpwnam("nobody").pw_uid
    attempt = """
try:
    ensure_running(Path(sys.argv[1]))
except ConfigurationError as error:
    print(error, flush=True)
"""
    stranger = spawn(BECOME + attempt, home, str(user))
    answer = line(stranger)
    assert "HOLDFAST_HOME" in answer
    assert str(home) in answer
