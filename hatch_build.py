"""Compiles src/holdfast/domain/_plain.c when the package is built. Without a compiler, Python does the same."""

from __future__ import annotations

import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("src/holdfast/domain/_plain.c")
MODULE = SOURCE.with_suffix(".abi3.so")


def compile_module(root: Path, target: Path) -> str | None:
    """Compile the module. Return what went wrong, if anything did."""
    shared = sysconfig.get_config_var("LDSHARED")
    if not shared:
        return "this Python does not say how it was compiled"
    command = [*shlex.split(shared), "-O2", "-fPIC", f"-I{sysconfig.get_path('include')}"]
    try:
        done = subprocess.run(
            [*command, "-o", target, root / SOURCE], capture_output=True, text=True, check=False, timeout=120
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr or f"exit code {done.returncode}" if done.returncode else None


class CustomBuildHook(BuildHookInterface[Any]):
    """Called by hatchling for wheels and for editable installations, where the module is placed next to its source."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        failure = compile_module(root, root / MODULE)
        if failure is not None:
            self.app.display_warning(f"{SOURCE} was not compiled, and Python does its work: {failure}")
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["artifacts"].append(str(MODULE))
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{platform}"
