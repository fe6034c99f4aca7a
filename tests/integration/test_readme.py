"""The README's example does what the README says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.integration.cli_support import FOREIGN

README = Path(__file__).parents[2] / "README.md"


def example() -> str:
    found = re.search(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    assert found, "the README has no example"
    return found[1]


def test_the_twenty_lines_run_in_two_terminals(tmp_path: Path, database_url: str) -> None:
    (tmp_path / "models.py").write_text(example())
    env = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)} | {
        "HOLDFAST_DATABASE_URL": database_url
    }
    worker = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "worker", "--tasks", "models", "--slots", "1"], cwd=tmp_path, env=env
    )
    try:
        asked = subprocess.run(
            [sys.executable, "models.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=90
        )
    finally:
        worker.terminate()
        ended = worker.wait(timeout=30)
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout.strip() == "{'level': 160.84, 'scenario': 'growth'}"
    assert ended == 0


def test_the_example_is_short() -> None:
    assert len([line for line in example().splitlines() if line.strip()]) <= 20
