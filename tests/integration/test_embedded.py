"""Lifecycle of the embedded server: who starts it, who stops it, and what happens if all users are killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from holdfast.embedded import ensure_running, stop_if_unused
from holdfast.embedded.places import Places
from holdfast.embedded.postmaster import find
from tests.integration.embedded_support import USER, execute, leave, line, postmaster, runs
from tests.integration.worker_support import eventually

Spawn = Callable[..., subprocess.Popen[str]]


def test_first_user_starts_the_server_and_the_last_one_stops_it(home: Path, spawn: Spawn) -> None:
    first = spawn(USER, home)
    url = line(first)
    server = postmaster(home)
    second = spawn(USER, home)
    assert line(second) == url
    with ensure_running(home) as own:
        assert own.url == url
        assert postmaster(home) == server
        leave(first)
        assert execute(url, "select 1") == [(1,)]
    assert runs(home)
    leave(second)
    assert not runs(home)


def test_simultaneous_first_users_get_one_server(home: Path, spawn: Spawn) -> None:
    users = [spawn(USER, home) for _ in range(4)]
    assert len({line(user) for user in users}) == 1
    for user in users:
        leave(user)
    assert not runs(home)


def test_data_stays_between_runs(home: Path) -> None:
    with ensure_running(home) as server:
        execute(server.url, "create table kept as select 42 as answer")
    with ensure_running(home) as server:
        assert execute(server.url, "table kept") == [(42,)]


def test_server_is_durable_private_and_has_the_documented_version(home: Path) -> None:
    settings = {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "data_checksums": "on",
        "listen_addresses": "",
        "server_encoding": "UTF8",
        "TimeZone": "UTC",
        "jit": "off",
    }
    with ensure_running(home) as server:
        assert {name: execute(server.url, f"show {name}")[0][0] for name in settings} == settings
        assert execute(server.url, "select current_setting('server_version_num')::int / 10000") == [(18,)]
        assert Places(home).sockets.stat().st_mode & 0o077 == 0
        assert execute(server.url, "select count(*) from pg_file_settings where error is not null") == [(0,)]


def test_killed_server_is_restarted_with_its_data(home: Path) -> None:
    with ensure_running(home) as server:
        execute(server.url, "create table kept as select 42 as answer")
        os.kill(postmaster(home), signal.SIGKILL)
        server.restart_if_dead()
        assert execute(server.url, "table kept") == [(42,)]
    assert not runs(home)


def test_dead_server_is_restarted_automatically(home: Path) -> None:
    with ensure_running(home) as server, contextlib.closing(psycopg.connect(server.url)) as connection:
        connection.pgconn.send_query(b"do $$ begin loop end loop; end $$")
        server.restart_when_dead()
        killed = postmaster(home)
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: find(Places(home)) not in (None, killed))
        server.restart_if_dead()
        assert execute(server.url, "select 1") == [(1,)]
    assert not runs(home)


def test_a_busy_process_of_a_killed_server_does_not_block_the_next_one(home: Path) -> None:
    with ensure_running(home) as server, contextlib.closing(psycopg.connect(server.url)) as connection:
        connection.pgconn.send_query(b"do $$ begin loop end loop; end $$")
        os.kill(postmaster(home), signal.SIGKILL)
        server.restart_if_dead()
        assert execute(server.url, "select 1") == [(1,)]


def test_a_server_whose_users_were_all_killed_is_used_again(home: Path, spawn: Spawn) -> None:
    users = [spawn(USER, home) for _ in range(2)]
    urls = {line(user) for user in users}
    server = postmaster(home)
    for user in users:
        user.kill()
        user.wait()
    assert runs(home)
    with ensure_running(home) as own:
        assert {own.url} == urls
        assert postmaster(home) == server
    assert not runs(home)


def test_no_data_is_lost_when_server_and_users_are_killed_together(home: Path, spawn: Spawn) -> None:
    user = spawn(USER.replace("durable=False", "durable=True"), home)
    execute(line(user), "create table kept as select 42 as answer")
    parent = postmaster(home)
    children = Path(f"/proc/{parent}/task/{parent}/children")
    victims = [int(pid) for pid in children.read_text().split()] if children.exists() else []
    for pid in [parent, user.pid, *victims]:
        os.kill(pid, signal.SIGKILL)
    user.wait()
    with ensure_running(home) as server:
        assert postmaster(home) != parent
        assert execute(server.url, "table kept") == [(42,)]
    assert not runs(home)


def test_stale_process_id_that_another_program_uses_is_ignored(home: Path, spawn: Spawn) -> None:
    with ensure_running(home):
        lines = Places(home).data.joinpath("postmaster.pid").read_text().splitlines()
    stranger = spawn("input()")
    stale = Places(home).data / "postmaster.pid"
    stale.write_text("\n".join([str(stranger.pid), *lines[1:], ""]))
    with ensure_running(home) as server:
        assert execute(server.url, "select 1") == [(1,)]
        assert postmaster(home) != stranger.pid
    assert stranger.poll() is None


def test_unfinished_data_directory_is_created_again(home: Path) -> None:
    leftover = Places(home).unfinished_data
    leftover.mkdir(parents=True)
    (leftover / "PG_VERSION").write_text("18\n")
    with ensure_running(home) as server:
        assert execute(server.url, "select 1") == [(1,)]
    assert not leftover.exists()


def test_server_stops_when_its_last_user_exits_without_releasing_it(home: Path, spawn: Spawn) -> None:
    user = spawn(USER.replace("server.release()", "raise SystemExit"), home)
    line(user)
    user.communicate("\n")
    assert not runs(home)


def test_a_forked_child_does_not_count_as_a_user(home: Path, spawn: Spawn) -> None:
    fork = """
import os
if os.fork() == 0:
    sys.stdin.readline()
    os._exit(0)
server.release()
"""
    parent = spawn(USER.replace("sys.stdin.readline()\nserver.release()", fork), home)
    assert line(parent)
    assert line(parent) == "left"
    assert not runs(home)


def test_second_release_has_no_effect(home: Path) -> None:
    first, second = ensure_running(home), ensure_running(home)
    first.release()
    first.release()
    assert execute(second.url, "select 1") == [(1,)]
    second.release()
    assert not runs(home)


def test_a_server_left_behind_can_be_stopped(home: Path, spawn: Spawn) -> None:
    user = spawn(USER, home)
    line(user)
    assert not stop_if_unused(home)
    user.kill()
    user.wait()
    assert stop_if_unused(home)
    assert not runs(home)


@pytest.mark.parametrize("name", ["deep" * 50, "with space", "one,two", "it's", "größe", "100%"])
def test_home_may_have_any_name(home: Path, name: str) -> None:
    home = home / name / "home"
    with ensure_running(home, durable=False) as server:
        assert execute(server.url, "select 1") == [(1,)]
        sockets = Places(home).sockets
        assert list(sockets.iterdir())
    assert not sockets.exists() or sockets.parent == home


def test_all_paths_to_a_directory_lead_to_the_same_server(home: Path, tmp_path: Path) -> None:
    home.mkdir(mode=0o711)
    (tmp_path / "alias").symlink_to(home)
    with ensure_running(home) as one, ensure_running(tmp_path / "alias") as other:
        assert one.url == other.url
