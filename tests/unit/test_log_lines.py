"""Log lines: secrets are masked, streams become complete lines, and no output is lost."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast.cli.up import _health_port
from holdfast.domain.masking import mask_secrets
from holdfast.domain.tokens import write_token
from holdfast.executors.performing import describe
from holdfast.observe.capture import LONGEST, Output, adopt_logging, capture, end_lines
from holdfast.observe.lines import Lines, LogFormat, to_descriptor
from holdfast.ops.children import diff
from holdfast.runtime.settings import Settings

Line = dict[str, Any]


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql://me:hunter2@db/x", "postgresql://me:********@db/x"),
        ("redis://:hunter2@cache:6379/0 is away", "redis://:********@cache:6379/0 is away"),
        ("host=db password=hunter2 user=me", "host=db password=******** user=me"),
        ("postgresql://me:hunter@2@db/x", "postgresql://me:********@db/x"),
        ("{'user': 'me', 'db_password': 'hunter 2'}", "{'user': 'me', 'db_password': ********}"),
        ('{"token":"abc","n":1}', '{"token":********,"n":1}'),
        ("password='cut off", "password=********"),
        (r'password="a\"b c" n=1', "password=******** n=1"),
        ("aws_secret_access_key = abc", "aws_secret_access_key = ********"),
        (f"Bearer {write_token(bytes(32))}", "Bearer hf_********"),
        ("unexpected token: x, password must not be empty", "unexpected token: x, password must not be empty"),
        ("GET /x?api_key=abc&page=2", "GET /x?api_key=********&page=2"),
        ("Token='abc def', n=1", "Token=********, n=1"),
        ("https://example.com/a:b@c and 3 = 4", "https://example.com/a:b@c and 3 = 4"),
        ("tokens=5 of 10", "tokens=5 of 10"),
        ('{"password": "hunter2"}', '{"password": ********}'),
        ("{'api_token': 'hunter2', 'n': 1}", "{'api_token': ********, 'n': 1}"),
        ("{b'password': b'hunter2'}", "{b'password': ********}"),
        (r'"{\"password\": \"hunter 2\", \"n\": 1}"', r'"{\"password\": ********, \"n\": 1}"'),
        ("user: me\npassword: hunter2\nport: 1", "user: me\npassword: ********\nport: 1"),
        ("Password:\nhunting", "Password:\nhunting"),
        ("api_token: hunter2, n: 1", "api_token: ********, n: 1"),
        ("X-API-Key: hunter2", "X-API-Key: ********"),
        ("> Authorization: Bearer hunter2", "> Authorization: Bearer ********"),
        ("authorization: Basic aHVudGVyMg== was refused", "authorization: Basic ******** was refused"),
        ("Authorization: Special hunter2", "Authorization: ********"),
        ("{'Authorization': 'Bearer hunter2', 'n': 1}", "{'Authorization': ********, 'n': 1}"),
        ("postgresql://me:hunt/er2@db/x", "postgresql://me:********@db/x"),
        ("postgresql://me:hunt#er2%@db/x", "postgresql://me:********@db/x"),
        ("https://x/?to=redis://me:hunter2@db", "https://x/?to=redis://me:********@db"),
        ("http://localhost:4873/@scope/x", "http://localhost:4873/@scope/x"),
        ('{"a":"redis://cache:6379/0","b":"me@x.org"}', '{"a":"redis://cache:6379/0","b":"me@x.org"}'),
    ],
)
def test_passwords_and_tokens_are_masked_and_other_text_is_kept(text: str, masked: str) -> None:
    assert mask_secrets(text) == masked


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "unit",
    [
        *("-", "_a", "token ", "://", "a:", "token='", "api_", "token" + " " * 100),
        *("password: ", "token=\\", "token=\\'", "token='\\", "Authorization: Bearer ", "authorization: a", "\\"),
        *("://a:b", "://h:8/", "http://h:8/", "secret:", "unexpected ", "bru'", "password=b"),
    ],
)
def test_masking_takes_linear_time(unit: str) -> None:
    """A line of a million characters once blocked its process for hours."""
    text = f"://{unit * (1_000_000 // len(unit))}="
    for end in ("", "@", '"@'):
        assert mask_secrets(f"@{text}{end}")


@pytest.mark.timeout(8)
def test_line_of_many_small_pieces_is_written_in_linear_time() -> None:
    with captured() as lines:
        for _ in range(1_000_000):
            sys.stdout.write(".")
        sys.stdout.write("\r" * 1000 + "end\n")
    assert [line["message"] for line in lines][-1] == "end"
    assert sum(line["message"].count(".") for line in lines) > 900_000


def test_difference_of_a_child_shows_no_secret() -> None:
    before, after = ({"kwargs": {"n": n, "api_token": word}} for n, word in ((1, "hunter2"), (2, "swordfish")))
    assert diff(before, after) == ["/kwargs/api_token: another value", "/kwargs/n: stored 1, requested 2"]


def test_stored_error_masks_the_same_secrets_as_the_log() -> None:
    try:
        raise ValueError("postgresql://me:hunter2@db/x")
    except ValueError as error:
        described = describe(error)
    assert described["message"] == "postgresql://me:********@db/x"
    assert "hunter2" not in described["traceback"]


@contextmanager
def captured() -> Iterator[list[Line]]:
    """Collect the lines written in the block, all for one run."""
    found: list[Line] = []
    output = Output(Lines(LogFormat(), lambda line: found.append(json.loads(line))), lambda: {"run_id": "r"})
    undo = capture(output)
    try:
        yield found
    finally:
        undo()


def messages(lines: list[Line]) -> list[str]:
    return [line["message"] for line in lines]


def test_line_is_written_when_it_is_complete_or_its_run_ends() -> None:
    with captured() as lines:
        print("one", "two")
        print("three", end="")
        assert messages(lines) == ["one two"]
        end_lines()
    assert messages(lines) == ["one two", "three"]
    assert {(line["event"], line["run_id"], line["level"]) for line in lines} == {("run.printed", "r", "info")}


def test_threads_do_not_mix_their_lines() -> None:
    with captured() as lines:
        print("mine ", end="")
        thread = threading.Thread(target=lambda: print("theirs"))
        thread.start()
        thread.join()
        print("too")
    assert messages(lines) == ["theirs", "mine too"]


def test_steps_of_a_progress_bar_become_one_line() -> None:
    with captured() as lines:
        for step in range(1000):
            sys.stderr.write(f"\r{step} of 1000")
        sys.stderr.write("\n")
        sys.stdout.write("with a windows ending\r\n")
    assert messages(lines) == ["999 of 1000", "with a windows ending"]


def test_a_very_long_line_is_split() -> None:
    with captured() as lines:
        print("x" * (LONGEST * 2 + 5))
    assert [len(message) for message in messages(lines)] == [LONGEST, LONGEST, 5]


def test_bytes_and_control_characters_are_escaped() -> None:
    with captured() as lines:
        sys.stdout.buffer.write(b"caf\xc3\xa9 \xff\n")
        print("\x1b[2Jgone\udc80")
    assert messages(lines) == ["café \\xff", "\\x1b[2Jgone\\udc80"]


def test_streams_and_handlers_are_restored_afterwards() -> None:
    before = sys.stdout, sys.stderr, sys.excepthook, threading.excepthook, logging.getLogger().level
    undo = capture(Output(Lines(LogFormat(), lambda line: None), lambda: None))
    undo()
    assert before == (sys.stdout, sys.stderr, sys.excepthook, threading.excepthook, logging.getLogger().level)


def test_pretty_lines_leave_output_outside_of_runs_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    written: list[str] = []
    undo = capture(Output(Lines(LogFormat(json=False), written.append), lambda: None))
    print("as it is")
    undo()
    assert (stream.getvalue(), written) == ("as it is\n", [])


def test_handlers_of_the_program_are_kept_and_the_default_is_replaced() -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    output = Output(Lines(LogFormat(), lambda line: None), lambda: None)
    try:
        root.handlers = [own := logging.FileHandler("/dev/null")]
        adopt_logging(output)
        assert root.handlers == [own]
        own.close()
        root.handlers, root.level = [], logging.WARNING
        logging.basicConfig()
        adopt_logging(output)
        assert [type(handler).__name__ for handler in root.handlers] == ["LogHandler"]
        assert root.level == logging.INFO
    finally:
        root.handlers = before
        root.setLevel(level)


def test_record_of_a_logger_with_a_console_handler_is_written_once() -> None:
    """Django's default configuration gives the logger `django` a handler, whose records also reach the root."""
    root, framework, own = logging.getLogger(), logging.getLogger("framework"), logging.getLogger("framework.own")
    before, level = root.handlers[:], root.level
    lines: list[Line] = []
    output = Output(Lines(LogFormat(), lambda line: lines.append(json.loads(line))), lambda: None)
    root.handlers = []
    undo = capture(output)
    framework.addHandler(console := logging.StreamHandler())
    own.addHandler(separate := logging.StreamHandler())
    own.propagate = False
    try:
        adopt_logging(output)
        adopt_logging(output)
        framework.warning("once")
        own.warning("printed")
        assert [(line["event"], line["message"]) for line in lines] == [("logged", "once"), ("printed", "printed")]
        undo()
        assert framework.handlers == [console]
    finally:
        framework.handlers, own.handlers, own.propagate = [], [], True
        separate.close()
        root.handlers = before
        root.setLevel(level)


def test_workers_of_up_get_consecutive_ports() -> None:
    assert _health_port(Settings(), 1) == ()
    assert [_health_port(Settings(worker_port=9101), n)[1] for n in (1, 2)] == ["9101", "9102"]
    assert _health_port(Settings(worker_port=0), 2)[1] == "0"


def test_line_is_written_completely_to_a_non_blocking_descriptor() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    read: list[bytes] = []
    with os.fdopen(reading, "rb") as source:
        reader = threading.Thread(target=lambda: read.append(source.read()))
        reader.start()
        to_descriptor(writing)("x" * 1_000_000)
        os.close(writing)
        reader.join()
    assert len(read[0]) == 1_000_000
