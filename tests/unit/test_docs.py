"""The documentation refers only to things that exist, and its Python examples are valid."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
# Paths in ARCHITECTURE.md are relative to one of these.
BASES = (ROOT, ROOT / "src/holdfast", ROOT / "src/holdfast/sql/migrations")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def slug(heading: str) -> str:
    """The anchor that GitHub generates for a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def located(path: str) -> Path | None:
    return next((base / path for base in BASES if (base / path).exists()), None)


@every_page
def test_python_examples_can_be_parsed(page: Path) -> None:
    for example in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        ast.parse(example)


@every_page
def test_links_and_anchors_exist(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    for path, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)", text):
        target = page.parent / path if path else page
        assert target.exists(), path
        if anchor:
            assert anchor in {slug(one) for one in re.findall(r"^#+ (.+)$", target.read_text("utf-8"), re.MULTILINE)}


def test_paths_in_the_architecture_exist() -> None:
    named = re.findall(r"`([\w./]+/[\w./]*|[\w.]+\.(?:py|md|toml|sha256))`", ARCHITECTURE.read_text("utf-8"))
    assert [path for path in named if not path.startswith("/") and located(path) is None] == []


def test_names_in_the_architecture_are_in_their_files() -> None:
    text = ARCHITECTURE.read_text("utf-8")
    for name, path in re.findall(r"`(\w+)(?:\(\))?` in\s`([\w./]+\.py)`", text):
        found = located(path)
        assert found is not None, path
        assert re.search(rf"\b{name}\b", found.read_text("utf-8")), f"{name} is not in {path}"


def test_architecture_lists_every_package() -> None:
    table = ARCHITECTURE.read_text("utf-8").partition("## Packages")[2].partition("\n## ")[0]
    packages = {one.parent.name for one in (ROOT / "src/holdfast").glob("*/__init__.py")}
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == packages
