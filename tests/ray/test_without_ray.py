"""Workers whose Ray cluster is unreachable or must not be used: they report it, and fail no runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.worker_support import eventually
from tests.ray.head import ROOT, outer_environment
from tests.ray.stage import WAIT_SECONDS, RayStage

DISABLED = {"RAY_AUTH_MODE": "disabled"}


@pytest.fixture
def nowhere(node_settings: dict[str, str], tmp_path: Path) -> Iterator[RayStage]:
    """A stage without a Ray cluster."""
    stage = RayStage(None, node_settings, tmp_path)
    yield stage
    stage.close()


@pytest.mark.parametrize(("executor", "address"), [("ray_core", "127.0.0.1:1"), ("ray_job", "http://127.0.0.1:1")])
def test_worker_without_its_ray_claims_nothing_and_why_and_doctor_report_it(
    nowhere: RayStage, executor: str, address: str
) -> None:
    run = nowhere.submit("ray.note", path=str(nowhere.file("note")), text="never")
    worker = nowhere.worker(executor, HOLDFAST_RAY_ADDRESS=address, **DISABLED)
    (reason,) = eventually(
        lambda: [reason for reason in nowhere.client.why(run) if reason.code == "executor-away"], WAIT_SECONDS
    )
    assert "127.0.0.1:1" in reason.detail
    assert (run.refresh().status, run.attempts()) == ("PENDING", [])
    examined = _holdfast(["doctor"], nowhere.node)
    assert "cannot use their cluster" in examined.stdout
    worker.terminate()
    assert worker.wait(30) == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"RAY_AUTH_MODE": "disabled"}, "set HOLDFAST_RAY_ADDRESS"),
        ({"HOLDFAST_RAY_ADDRESS": "127.0.0.1:6379"}, "set RAY_AUTH_MODE=token"),
        ({"HOLDFAST_RAY_ADDRESS": "8.8.8.8:6379", "RAY_AUTH_MODE": "disabled"}, "8.8.8.8 is a public address"),
    ],
)
def test_a_worker_does_not_start_with_an_address_that_must_not_be_used(
    node_settings: dict[str, str], settings: dict[str, str], said: str
) -> None:
    refused = _holdfast(["worker", "--executor", "ray_core"], {**node_settings, **settings})
    assert refused.returncode != 0
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr


def test_worker_without_the_extra_says_in_one_line_what_to_install(
    node_settings: dict[str, str], tmp_path: Path
) -> None:
    hidden = tmp_path / "ray.py"
    hidden.write_text("raise ImportError('not installed')\n", "utf-8")
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as util\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name == 'ray' else find(name, *rest)\n",
        "utf-8",
    )
    given = {**node_settings, "HOLDFAST_RAY_ADDRESS": "127.0.0.1:6379", "PYTHONPATH": f"{tmp_path}:{ROOT}", **DISABLED}
    refused = _holdfast(["worker", "--executor", "ray_core"], given)
    assert refused.returncode != 0
    assert "the executor ray_core needs Ray: pip install 'holdfast[ray]'" in refused.stderr
    assert "Traceback" not in refused.stderr


def _holdfast(arguments: list[str], settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in outer_environment().items() if not name.startswith("RAY_")}
    environment |= {"PYTHONPATH": str(ROOT), **settings}
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
