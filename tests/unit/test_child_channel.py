"""A child process serves its worker over any channel, not only over a socket pair."""

from __future__ import annotations

import os
import subprocess
import sys
from subprocess import PIPE
from typing import Any

from holdfast.executors.channel import Unframer, frame

CHILD = """
import os
from collections import deque
from holdfast.executors.channel import Unframer, frame
from holdfast.executors.child import main
from holdfast.executors.shared_state import make_shared_state

class PipeChannel:
    def __init__(self):
        self._unframer = Unframer()
    def send(self, messages):
        os.write(1, frame(messages))
    def receive(self):
        while data := os.read(0, 4096):
            if messages := list(self._unframer.feed(data)):
                return messages
        return None

main(PipeChannel(), make_shared_state()[1], 2)
"""


def test_child_performs_runs_over_pipes() -> None:
    settings = {
        "path": sys.path,
        "modules": ["holdfast.tasks"],
        "limits": {},
        "child_limits": {},
        "transactions": "",
        "url": "",
        "log_format": None,
    }
    run = ["run", 1, "mock", {"seconds": 0.0, "steps": 1}, "", None, 0.0]
    command = [sys.executable, "-c", CHILD]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, start_new_session=True) as child:
        try:
            assert exchange(child, ["settings", settings], until="ready") == [["ready"]]
            *_, ending = exchange(child, ["runs", "worker", 0, [run]], until="ok")
            assert ending[:2] == ["ok", 0]
            assert child.stdin is not None
            child.stdin.close()
            assert child.wait(10) == 0
        finally:
            child.kill()


def exchange(child: subprocess.Popen[bytes], message: list[Any], until: str) -> list[Any]:
    """Send a message, and return what the child sends until a message of this kind."""
    assert child.stdin is not None
    assert child.stdout is not None
    os.write(child.stdin.fileno(), frame([message]))
    unframer = Unframer()
    messages: list[Any] = []
    while not messages or messages[-1][0] != until:
        data = os.read(child.stdout.fileno(), 4096)
        assert data, f"the child exited after {messages}"
        messages += unframer.feed(data)
    return messages
