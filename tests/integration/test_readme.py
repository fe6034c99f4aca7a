"""The README's example does what the README says, and the page about Python what that page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from holdfast.cli import exits
from holdfast.runtime.settings import PREFIX, Settings
from tests.integration.cli_support import FOREIGN

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGE = ROOT / "docs" / "python.md"


def example() -> str:
    found = re.search(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    assert found, "the README has no example"
    return found[1]


def beside_a_worker(directory: Path, database_url: str, tasks: str, program: str) -> str:
    """What a program prints while a worker executes what it submits; both have to end well."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    env = kept | {"HOLDFAST_DATABASE_URL": database_url}
    worker = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "worker", "--tasks", tasks, "--slots", "2"],
        cwd=directory,
        env=env,
        stderr=subprocess.DEVNULL,
    )
    try:
        asked = subprocess.run(
            [sys.executable, program], cwd=directory, env=env, capture_output=True, text=True, timeout=90
        )
    finally:
        worker.terminate()
        ended = worker.wait(timeout=30)
    assert asked.returncode == 0, asked.stderr
    assert ended == 0
    return asked.stdout


def test_the_twenty_lines_run_in_two_terminals(tmp_path: Path, database_url: str) -> None:
    (tmp_path / "models.py").write_text(example())
    told = beside_a_worker(tmp_path, database_url, "models", "models.py")
    assert told.strip() == "{'level': 160.84, 'scenario': 'growth'}"


def test_the_example_is_short() -> None:
    assert len([line for line in example().splitlines() if line.strip()]) <= 20


def test_every_block_of_the_page_about_python_runs(tmp_path: Path, database_url: str) -> None:
    module, *blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "shop.py").write_text(module)
    (tmp_path / "page.py").write_text("\n".join(blocks))
    beside_a_worker(tmp_path, database_url, "shop", "page.py")


def test_the_page_tells_every_setting_and_its_default() -> None:
    told = dict(re.findall(rf"^\| `{PREFIX}(\w+)` \| `?(.*?)`? \|", PAGE.read_text("utf-8"), re.MULTILINE))
    known = {name.upper(): value for name, value, _ in Settings().shown()}
    assert told.keys() == known.keys()
    assert {name: value.removesuffix(".0").lower() for name, value in known.items()} == told


def test_the_page_tells_every_exit_code() -> None:
    (table,) = re.findall(r"\| code \| meaning \|\n(.*?)\n\n", PAGE.read_text("utf-8"), re.DOTALL)
    told = {int(code) for codes in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for code in codes.split(",")}
    assert told == exits.MEANINGS.keys()


def test_links_lead_somewhere() -> None:
    for page in (README, PAGE):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
