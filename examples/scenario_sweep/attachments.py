"""Files that a run stores in the artifacts directory, and that its result refers to."""

from __future__ import annotations

from hashlib import file_digest
from pathlib import Path
from typing import Any

from holdfast import Fatal, current_run
from holdfast.runtime.settings import load


def place_for(name: str) -> Path:
    """Return the path for a file of this run, a new one for each attempt, so that a late attempt overwrites nothing."""
    artifacts = load().artifacts
    if "://" in artifacts:
        raise Fatal(f"this example keeps its files in a directory, and HOLDFAST_ARTIFACTS is {artifacts}")
    run = current_run()
    path = Path(artifacts).absolute() / run.id / f"{run.attempt}-{name}"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def attach(path: Path, media_type: str) -> dict[str, Any]:
    """Return what a result says about a file: where it is, and the digest that shows whether it has changed."""
    with path.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    return {"path": str(path), "media_type": media_type, "bytes": path.stat().st_size, "sha256": digest}
