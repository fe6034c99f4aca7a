"""The page about the API: every line of its walkthrough runs against the shipped server and a worker."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from holdfast.http.nouns import NOUNS
from holdfast.runtime.settings import Settings
from tests.http.conftest import ROOT, Server

PAGE = (ROOT / "docs" / "http.md").read_text("utf-8")


@pytest.fixture
def worker(settings: Settings) -> Iterator[None]:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    environment = {
        **outside,
        "PYTHONPATH": "src",
        "HOLDFAST_DATABASE_URL": settings.database_url or "",
        "HOLDFAST_ARTIFACTS": settings.artifacts,
        "HOLDFAST_GRACE_SECONDS": "1",
    }
    command = [sys.executable, "-m", "holdfast", "worker", "--executor", "inline", "--slots", "4"]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
    yield
    process.terminate()
    process.wait(30)


def test_every_line_of_the_walkthrough_works(server: Server, worker: None) -> None:
    missing = [tool for tool in ("bash", "curl", "jq") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"the walk through docs/http.md needs {', '.join(missing)}, which this machine does not have")
    blocks = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    script = "set -euo pipefail\n" + "".join(blocks).replace("http://127.0.0.1:8080", server.url)
    done = subprocess.run(["bash", "-x"], input=script, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr[-2000:]


def test_page_names_only_existing_routes_and_settings() -> None:
    paths = {route.path for noun in NOUNS for route in noun.routes}
    for named in re.findall(r"`GET (/[a-z.]+)`", PAGE):
        assert named in paths
    settings = set(Settings.__dataclass_fields__)
    for name in re.findall(r"`HOLDFAST_([A-Z_]+)`", PAGE):
        assert name.lower() in settings
