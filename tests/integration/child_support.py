"""Shared by tests of child processes: a stage with harmful tasks, and a check that other runs are not affected."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from holdfast.client import Run
from tests.integration.worker_support import TASKS, Stage


def harmful_stage(database_url: str, directory: Path, **settings: Any) -> Stage:
    return Stage(database_url, directory, tasks=(TASKS, "tests.integration.child_tasks"), **settings)


def unharmed(stage: Stage, runs: Iterable[Run]) -> bool:
    """Whether each run succeeded without a failed attempt; a run may have been handed back before it began."""
    endings = [(attempt[1], attempt[3]) for run in runs for attempt in stage.attempts(run)]
    return set(endings) - {("CANCELLED", "handed-back")} == {("SUCCEEDED", None)}
