"""The command by which this program is called."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

PROGRAM = "holdfast"


def called() -> str:
    """What a user types to call this program: its name if it is on the PATH, otherwise its path."""
    installed = Path(sys.executable).with_name(PROGRAM)
    found = shutil.which(PROGRAM)
    if found and (not installed.exists() or Path(found).samefile(installed)):
        return PROGRAM
    if not installed.exists():
        return f"{sys.executable} -m {PROGRAM}"
    here = Path.cwd()
    return str(installed.relative_to(here) if installed.is_relative_to(here) else installed)
