"""ARCHITECTURE.md names every package, and no file that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "holdfast"
TEXT = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
TERMS_AT_MOST = 30


def _section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_every_package_has_a_row() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert set(re.findall(r"^\| `(\w+)` \|", _section("Packages"), re.MULTILINE)) == packages


def test_every_named_file_exists() -> None:
    named = set(re.findall(r"`([\w/]+\.(?:py|md))`", TEXT))
    assert len(named) > 40
    assert [name for name in named if not (PACKAGE / name).exists() and not (ROOT / name).exists()] == []


def test_every_named_folder_exists() -> None:
    named = set(re.findall(r"`((?:tests|docs|src|http|verbs|sql)/[\w/]+)`", TEXT))
    assert [name for name in named if not (PACKAGE / name).exists() and not (ROOT / name).exists()] == []


def test_glossary_has_few_terms() -> None:
    terms = re.findall(r"^\| ([a-z ]+) \|", _section("Glossary"), re.MULTILINE)[1:]
    assert terms == sorted(terms)
    assert len(terms) <= TERMS_AT_MOST
