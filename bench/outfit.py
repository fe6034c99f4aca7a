"""The peers' own interpreter and packages, apart from ours. One that cannot be installed is named in the table."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SCRATCH = ROOT / ".bench"
PINS = HERE / "peers.txt"
NODE_PINS = HERE / "package.json"
PEERS_PYTHON = SCRATCH / "venv" / "bin" / "python"
NODE = SCRATCH / "node"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def install() -> None:
    """Install what is missing or pinned otherwise since."""
    _once(SCRATCH / "venv", PINS, _install_python)
    if shutil.which("npm") and shutil.which("node"):
        _once(NODE, NODE_PINS, _install_node)


def _once(place: Path, pins: Path, make: Callable[[], bool]) -> None:
    mark = hashlib.sha256(pins.read_bytes() + sys.version.encode()).hexdigest()
    stamp = place / "bench-stamp"
    if stamp.is_file() and stamp.read_text() == mark:
        return
    say(f"installing the peers of {pins.name} into {place.relative_to(ROOT)}")
    shutil.rmtree(place, ignore_errors=True)
    if make():
        stamp.write_text(mark)


def _install_python() -> bool:
    subprocess.run([sys.executable, "-m", "venv", PEERS_PYTHON.parent.parent], check=True)
    pip = [str(PEERS_PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.run([*pip, "-r", str(PINS)], check=False).returncode == 0:
        return True
    # One that cannot be had must not keep the others away.
    wanted = [line for line in PINS.read_text().splitlines() if line and not line.startswith("#")]
    failed = [one for one in wanted if subprocess.run([*pip, one], check=False).returncode]
    return not failed


def _install_node() -> bool:
    NODE.mkdir(parents=True)
    shutil.copy(NODE_PINS, NODE)
    npm = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"]
    return subprocess.run(npm, cwd=NODE, check=False).returncode == 0


def python_version(package: str) -> str | None:
    """The version of a package that the peers' interpreter has."""
    if not PEERS_PYTHON.exists():
        return None
    ask = f"from importlib.metadata import version; print(version({package!r}))"
    asked = subprocess.run([PEERS_PYTHON, "-c", ask], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or None


def node_version(package: str) -> str | None:
    manifest = NODE / "node_modules" / package / "package.json"
    if not manifest.is_file() or shutil.which("node") is None:
        return None
    found = re.search(r'^  "version": "([^"]+)"', manifest.read_text(), flags=re.MULTILINE)
    return found[1] if found else None


def environment(**more: str) -> dict[str, str]:
    """The environment of a contender's process: nobody's settings but those given."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "BENCH_", "PG"))}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return kept | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"} | more
