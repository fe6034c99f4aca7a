"""Django tasks as Ray jobs: the node sets Django up, and killed jobs are retried."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.processes.family import family
from tests.django.app import tasks
from tests.django.app.receivers import FILE_VARIABLE
from tests.django.settings import DATABASE_VARIABLE
from tests.django.site_support import BRIEF_LEASE, DEADLINE, eventually, worker
from tests.ray.stand_in import TOKEN, StandIn


@pytest.fixture
def node(site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """A job server whose jobs find the site in their environment."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    server = StandIn(
        {
            **BRIEF_LEASE,
            "HOLDFAST_DATABASE_URL": site,
            "HOLDFAST_TASKS": "holdfast.django.setup",
            "DJANGO_SETTINGS_MODULE": "tests.django.settings",
            DATABASE_VARIABLE: site,
            FILE_VARIABLE: str(tmp_path / "signals"),
        }
    )
    yield server
    server.close()


def test_killed_job_of_a_django_task_is_retried_and_each_signal_is_sent_once(node: StandIn, tmp_path: Path) -> None:
    signals = tmp_path / "signals"
    result = tasks.hang_once.enqueue(str(tmp_path))
    settings = {FILE_VARIABLE: str(signals), "HOLDFAST_RAY_ADDRESS": node.address}
    with worker("--executor=ray_job", "--slots=1", **settings) as process:
        eventually((tmp_path / "begun").exists)
        for job in [member for one in list(node._processes.values()) for member in family(one.pid)]:
            with suppress(ProcessLookupError):
                os.kill(job, signal.SIGKILL)

        def finished() -> bool:
            result.refresh()
            return bool(result.is_finished)

        eventually(finished)
        eventually(lambda: "finished" in signals.read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0
    assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", 2, 2)
    assert len(result.errors) == 1
    assert signals.read_text().splitlines() == [
        "started HoldfastBackend hang_once RUNNING 1",
        "started HoldfastBackend hang_once RUNNING 2",
        "finished HoldfastBackend hang_once SUCCESSFUL 2",
    ]
