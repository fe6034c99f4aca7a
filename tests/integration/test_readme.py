"""The example of the README and the blocks of the page about Python work as documented."""

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


def run_with_a_worker(directory: Path, database_url: str, tasks: str, program: str) -> str:
    """Return the output of a program whose runs a worker executes; both must succeed."""
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


def test_example_runs_with_a_worker_in_another_process(tmp_path: Path, database_url: str) -> None:
    (tmp_path / "models.py").write_text(example())
    output = run_with_a_worker(tmp_path, database_url, "models", "models.py")
    assert output.strip() == "{'level': 160.84, 'scenario': 'growth'}"


def test_the_example_is_short() -> None:
    assert len([line for line in example().splitlines() if line.strip()]) <= 20


def test_every_block_of_the_page_about_python_runs(tmp_path: Path, database_url: str) -> None:
    module, *blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "shop.py").write_text(module)
    (tmp_path / "page.py").write_text("\n".join(blocks))
    run_with_a_worker(tmp_path, database_url, "shop", "page.py")


def test_page_lists_every_setting_and_its_default() -> None:
    output = dict(re.findall(rf"^\| `{PREFIX}(\w+)` \| `?(.*?)`? \|", PAGE.read_text("utf-8"), re.MULTILINE))
    known = {name.upper(): value for name, value, _ in Settings().shown()}
    assert output.keys() == known.keys()
    assert {name: value.removesuffix(".0").lower() for name, value in known.items()} == output


def test_page_lists_every_exit_code() -> None:
    (table,) = re.findall(r"\| code \| meaning \|\n(.*?)\n\n", PAGE.read_text("utf-8"), re.DOTALL)
    output = {int(code) for codes in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for code in codes.split(",")}
    assert output == exits.MEANINGS.keys()


def test_links_are_valid() -> None:
    for page in (README, PAGE):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
