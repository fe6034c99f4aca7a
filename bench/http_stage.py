"""A stage for the measurements over HTTP: a durable Postgres of its own, and the shipped server before it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.embedded import ensure_running
from holdfast.schema.migrate import upgrade

ROOT = Path(__file__).parents[1]


@dataclass
class Stage:
    """Where things are: the API, its database, and the embedded server if that is what it is."""

    url: str
    database_url: str
    postgres: Any


@contextmanager
def stage(**settings: str) -> Iterator[Stage]:
    """Everything started, on HOLDFAST_DATABASE_URL if that is set, and stopped again."""
    given = os.environ.get("HOLDFAST_DATABASE_URL")
    with tempfile.TemporaryDirectory(prefix="holdfast-http-") as directory:
        Path(directory).chmod(0o711)
        postgres = None if given else ensure_running(Path(directory) / "home")
        database_url = given or postgres.url  # type: ignore[union-attr]
        upgrade(database_url)
        outside = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        environment = {
            **outside,
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            "HOLDFAST_DATABASE_URL": database_url,
            "HOLDFAST_ARTIFACTS": str(Path(directory) / "artifacts"),
            **{f"HOLDFAST_{name.upper()}": value for name, value in settings.items()},
        }
        command = [sys.executable, "-m", "holdfast", "api", "--port", "0"]
        server = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
        try:
            assert server.stderr is not None
            said = server.stderr.readline()
            # Nobody reads its log, and it must not wait for anybody to.
            threading.Thread(target=server.stderr.read, daemon=True).start()
            yield Stage(said.rpartition(" ")[2].strip(), database_url, postgres)
        finally:
            server.terminate()
            server.wait(60)
            if postgres is not None:
                postgres.release()
