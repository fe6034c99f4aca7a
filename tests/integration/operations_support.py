"""docs/operations.md as programs: the shell blocks of a section, run unchanged."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import textwrap
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text("utf-8")
FOREIGN = ("HOLDFAST_", "POSTGRES_", "WORKER_", "JOB_", "DATABASE_URL", "REDIS_URL", "PG")


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found, title
    return found[1]


def script(title: str) -> str:
    """Return the commands in a section."""
    blocks = re.findall(r"^( *)```bash\n(.*?)^\1```", section(title), re.DOTALL | re.MULTILINE)
    assert blocks, title
    return "set -eu\n" + "".join(textwrap.dedent(block) for _, block in blocks)


def run(title: str, directory: Path, path: Path, seconds: float = 100, **variables: str) -> str:
    """Run the blocks of a section with these programs first on the path; they must succeed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    environment = kept | variables | {"PATH": f"{path}{os.pathsep}{os.environ['PATH']}"}
    (directory / "script").write_text(script(title))
    with (directory / "output").open("w+") as output:
        # Not through a pipe: programs that a failed script leaves behind would keep it open.
        process = subprocess.Popen(
            ["bash", "-x", str(directory / "script")],
            cwd=directory,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
        finally:
            with suppress(ProcessLookupError):  # what a failed script leaves behind ends with it
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        said = output.read()
    assert code == 0, said[-3000:]
    return said
