"""Commands and unusable database URLs: no part of a password is shown, and an empty URL is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cli_support import InProcessShell

URLS = {
    "percent": "postgresql://me:hunt%zzer2@127.0.0.1:1/x",
    "space": "postgresql://me:hunt er2@127.0.0.1:1/x",
    "at": "postgresql://me:hunt@er2@127.0.0.1:1/x",
    "slash": "postgresql://me:hunt/er2@127.0.0.1:1/x",
    "digits and slash": "postgresql://localhost:1/er2-hunt@127.0.0.1:1/x",
    "hash": "postgresql://me:hunt#er2@127.0.0.1:1/x",
    "no scheme": "me:hunter2@127.0.0.1:1/x",
    "no scheme and a parameter": "me:hunter2@127.0.0.1:1/x?a=b",
    "no host": "postgresql://me:hunter2/x",
    "pairs": "host=127.0.0.1 port=1 password=hunt er2",
    "parameter": "postgresql://me@127.0.0.1:1/x?password=hunt@er2&sslmod=off",
}


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> InProcessShell:
    return InProcessShell(tmp_path, {}, monkeypatch, capsys)


@pytest.mark.parametrize("command", [["runs", "list"], ["db", "url"], ["worker"], ["doctor"]])
def test_an_empty_database_url_starts_no_embedded_server(
    shell: InProcessShell, command: list[str], tmp_path: Path
) -> None:
    answer = shell(*command, env={"HOLDFAST_DATABASE_URL": ""})
    assert answer.code == 1
    assert "unset it to use the embedded server" in answer.out + answer.err
    assert not (tmp_path / ".holdfast").exists()


@pytest.mark.parametrize("url", URLS.values(), ids=URLS)
def test_no_part_of_a_password_is_shown_by_a_command_that_cannot_connect(shell: InProcessShell, url: str) -> None:
    for command in (["runs", "list"], ["--traceback", "runs", "list"], ["doctor"], ["config", "show"]):
        answer = shell(*command, env={"HOLDFAST_DATABASE_URL": url})
        said = answer.out + answer.err
        assert "hunt" not in said
        assert "er2" not in said
        assert said


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        (URLS["percent"], "write % as %25"),
        (URLS["space"], "a space as %20"),
        (URLS["at"], "@ as %40"),
        (URLS["slash"], "/ as %2F"),
        (URLS["hash"], "Connection refused"),
        (URLS["no scheme"], "must be postgresql://user:password@host:port/name"),
        ("postgresql://127.0.0.1:1/x?sslmod=off", 'invalid URI query parameter: "sslmod"'),
    ],
)
def test_an_unusable_database_url_is_explained(shell: InProcessShell, url: str, advice: str) -> None:
    assert advice in shell("runs", "list", env={"HOLDFAST_DATABASE_URL": url}).err
