"""The environment of this process, recorded with a worker as the provenance of its results."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

_SUFFIX = ".dist-info"


def describe_environment(task_modules: Iterable[str]) -> dict[str, Any]:
    """Return the versions of Python, of the platform, of installed packages, and of the modules that define tasks."""
    return {
        "code_version": _code_version(tuple(sorted(set(task_modules)))),
        "python_version": platform.python_version(),
        "platform": _platform(),
        "packages": _packages(),
    }


@cache
def _platform() -> str:
    """Return what `platform.platform()` does, which on Linux starts a process to determine the type of processor."""
    if sys.platform != "linux":
        return platform.platform()
    system = os.uname()
    return "-".join([system.sysname, system.release, system.machine, "with", "".join(platform.libc_ver())])


@cache
def _packages() -> dict[str, str]:
    """The installed packages by name, from the names of their metadata directories: opening each would take longer."""
    found: dict[str, str] = {}
    for entry in sys.path:
        for metadata in sorted(Path(entry).glob(f"*{_SUFFIX}")):
            name, _, version = metadata.name.removesuffix(_SUFFIX).partition("-")
            found.setdefault(name, version)
    return dict(sorted(found.items()))


@cache
def _code_version(modules: tuple[str, ...]) -> str | None:
    """A digest of the modules' source files; None if a module has none, such as one typed into a console."""
    digest = sha256()
    for name in modules:
        path = getattr(sys.modules.get(name), "__file__", None)
        try:
            source = Path(path).read_bytes() if path else None
        except OSError:
            source = None
        if source is None:
            return None
        digest.update(f"{name} {len(source)}\n".encode() + source)
    return f"sha256:{digest.hexdigest()}"
