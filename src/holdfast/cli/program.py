"""How this program is called here."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

PROGRAM = "holdfast"


def called() -> str:
    """What a person types here to call this program: its name if the PATH leads to it, else where it is."""
    beside = Path(sys.executable).with_name(PROGRAM)
    found = shutil.which(PROGRAM)
    if found and (not beside.exists() or Path(found).samefile(beside)):
        return PROGRAM
    if not beside.exists():
        return f"{sys.executable} -m {PROGRAM}"
    here = Path.cwd()
    return str(beside.relative_to(here) if beside.is_relative_to(here) else beside)
