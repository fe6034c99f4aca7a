"""Workers of the site as processes, which can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
DEADLINE = 100.0
# Short, so that the lease of a killed worker expires soon.
BRIEF_LEASE = {"HOLDFAST_LEASE_SECONDS": "3", "HOLDFAST_RENEW_SECONDS": "0.5", "HOLDFAST_GRACE_SECONDS": "1"}


def eventually(look: Callable[[], T]) -> T:
    """Return the result of `look` as soon as it is true."""
    ends = time.monotonic() + DEADLINE
    while not (found := look()):
        if time.monotonic() > ends:
            raise AssertionError(f"not within {DEADLINE} s: {look}")
        time.sleep(0.02)
    return found


@contextmanager
def worker(*options: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker with child processes, killed at the end if it still runs. Its database is in the environment."""
    command = [sys.executable, "-m", "django", "holdfast_worker", "--skip-checks", *options]
    given = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.django.settings", **BRIEF_LEASE, **environment}
    with subprocess.Popen(command, cwd=ROOT, env=given, start_new_session=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
