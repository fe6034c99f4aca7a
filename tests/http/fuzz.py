"""Thousands of generated calls of the whole API: no server errors, and no undocumented responses.

    python -m tests.http.fuzz [CALLS]

Starts a database, the shipped server and a worker, creates a token, and runs schemathesis until it has made at least
this many calls (20,000 by default). Exits with 0 only if all checks passed for every call.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

import psycopg

from holdfast.domain.ids import new_id
from holdfast.domain.tokens import SCOPES, mint
from holdfast.drivers.psycopg import transact
from holdfast.embedded import ensure_running
from holdfast.ops.tokens import create_token
from holdfast.schema.migrate import upgrade

ROOT = Path(__file__).parents[2]
CONFIG = Path(__file__).with_name("schemathesis.toml")
EXAMPLES = 80


def start(stack: ExitStack, environment: dict[str, str], *command: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    stack.callback(process.wait, 30)
    stack.callback(process.terminate)
    return process


def make_token(url: str) -> str:
    text, stored = mint(secrets.token_bytes(32), new_id(), "fuzz", SCOPES, by="fuzz")
    with psycopg.connect(url, autocommit=True) as connection:
        transact(connection, lambda: create_token(stored))
    return text


def call(url: str, token: str, seed: int) -> tuple[int, bool]:
    """One round of schemathesis: how many calls it made, and whether all checks passed."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG), "run", f"{url}/openapi.json"),
            *("--header", f"Authorization: Bearer {token}", "--seed", str(seed), "--continue-on-failure"),
            *("--max-examples", str(EXAMPLES), "--workers", "2", "--no-color", "--warnings", "off"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    counted = re.search(r"(\d+) generated", done.stdout)
    if done.returncode or counted is None:
        print(*(line[:500] for line in done.stdout.splitlines()[-200:]), done.stderr[-2000:], sep="\n")
        return int(counted[1]) if counted else 0, False
    return int(counted[1]), True


def main() -> int:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    outside = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-fuzz-")))
        home.chmod(0o711)
        database = stack.enter_context(ensure_running(home / "home", durable=False)).url
        upgrade(database)
        token = make_token(database)
        environment = {
            **outside,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
            "HOLDFAST_DATABASE_URL": database,
            "HOLDFAST_ARTIFACTS": str(home / "artifacts"),
            "HOLDFAST_TASKS": "tests.http.api_tasks",
            "HOLDFAST_PORT": "0",
        }
        server = start(stack, environment, "-m", "tests.http.serving")
        start(stack, environment, "-m", "holdfast", "worker", "--executor", "inline", "--slots", "4")
        url = server.stdout.readline().strip() if server.stdout else ""
        calls, began, seed = 0, monotonic(), secrets.randbelow(2**32)
        while calls < wanted:
            made, well = call(url, token, seed)
            calls += made
            print(f"{calls} calls in {monotonic() - began:.0f} s (seed {seed})", flush=True)
            if not well:
                return 1
            seed += 1
        with psycopg.connect(database) as connection:
            runs = connection.execute("select count(*) from holdfast.runs").fetchone()
        print(f"every answer was in the document, none was a server error; {runs[0] if runs else 0} runs were made")
    return 0


if __name__ == "__main__":
    sys.exit(main())
