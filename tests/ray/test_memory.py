"""A task takes more memory than its node has, by the limit that Ray's memory monitor was given, and Ray kills it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.worker_support import eventually
from tests.ray.conftest import new_head, use_token
from tests.ray.head import Head
from tests.ray.stage import WAIT_SECONDS, RayStage

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

# What the task takes beyond what is in use now, and how much of that Ray allows. Other programs come and go meanwhile.
TAKEN, ALLOWED = 6 * 2**30, 3 * 2**30


def memory() -> dict[str, int]:
    """The memory of this machine in bytes, as the kernel describes it."""
    found = re.findall(r"^(\w+): +(\d+) kB$", Path("/proc/meminfo").read_text("utf-8"), re.MULTILINE)
    return {name: int(value) * 1024 for name, value in found}


@pytest.fixture
def limited_head(node_settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Head]:
    """A head that kills actors when a little more memory is in use than now."""
    now = memory()
    threshold = (now["MemTotal"] - now["MemAvailable"] + ALLOWED) / now["MemTotal"]
    limits = {"RAY_memory_usage_threshold": f"{threshold:.4f}", "RAY_memory_monitor_refresh_ms": "100"}
    head = new_head({**node_settings, **limits})
    use_token(monkeypatch, head)
    yield head
    head.close()


def test_a_run_that_takes_too_much_memory_is_killed_by_ray_lost_and_retried(
    limited_head: Head, node_settings: dict[str, str], tmp_path: Path
) -> None:
    stage = RayStage(limited_head, node_settings, tmp_path)
    try:
        run = stage.submit("ray.grow_once", path=str(stage.file("began")), most=TAKEN)
        stage.worker("ray_core", slots=1)
        eventually(lambda: stage.lines("began")[1:], WAIT_SECONDS)
        first = run.attempts()[0]
        assert first.error is not None
        assert (first.status, first.error["class"]) == ("LOST", "OutOfMemoryError")
    finally:
        stage.close()
