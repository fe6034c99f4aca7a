"""A short version of `make chaos`: twenty seconds, each fault once, four workers, and the same checks."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SLICE = ["--seconds", "20", "--workers", "4", "--users", "2", "--rate", "6", "--pace", "0.7", "--seed", "9"]


@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="the harness needs setpriv (util-linux)")
def test_faults_under_load_lose_duplicate_and_block_no_run() -> None:
    played = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *SLICE], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    print(played.stdout)
    assert played.returncode == 0, f"{played.stdout}\n{played.stderr[-3000:]}"
