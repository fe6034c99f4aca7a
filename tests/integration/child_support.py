"""What tests of child processes share: a stage with tasks that do harm, and what no innocent run may suffer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from holdfast.client import Run
from tests.integration.worker_support import TASKS, Stage


def harmful_stage(database_url: str, directory: Path, **settings: Any) -> Stage:
    return Stage(database_url, directory, tasks=(TASKS, "tests.integration.child_tasks"), **settings)


def unharmed(stage: Stage, runs: Iterable[Run]) -> bool:
    """Whether each run succeeded, and no attempt of it failed: at most it was handed back before it began."""
    endings = [(attempt[1], attempt[3]) for run in runs for attempt in stage.attempts(run)]
    return set(endings) - {("CANCELLED", "handed-back")} == {("SUCCEEDED", None)}
