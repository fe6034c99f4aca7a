"""The log of the shipped server is all JSON, including lines from libraries."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

from holdfast.processes.family import children
from tests.http.conftest import ROOT, Server
from tests.integration.worker_support import eventually

NOISY = """
import logging, sys, warnings
print("printed by a library")
print("to stderr", file=sys.stderr)
logging.getLogger("library").warning("logged by a library")
warnings.warn("doubtful")
"""


def test_lines_of_libraries_and_of_the_server_itself_are_json(
    start_server: Callable[..., Server], tmp_path: Path
) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    server = start_server(
        PYTHONPATH=f"{ROOT / 'src'}:{ROOT}:{tmp_path}", HOLDFAST_LOG_FORMAT="json", HOLDFAST_TASKS="noisy"
    )
    with server.client() as client:
        assert client.get("/livez").status_code == 200
        [process] = children(server.process.pid)
        os.kill(process, signal.SIGKILL)
        eventually(lambda: [pid for pid in children(server.process.pid) if pid != process])
        eventually(lambda: client.get("/livez").status_code == 200)
    _, output = server.stop()
    lines = [json.loads(line) for line in output.splitlines()]
    levels = {line.get("message"): line["level"] for line in lines}
    assert levels["printed by a library"] == levels["to stderr"] == "info"
    assert any(line.get("logger") == "gunicorn.error" and "SIGKILL" in line["message"] for line in lines)
