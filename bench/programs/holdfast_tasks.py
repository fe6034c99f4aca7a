"""Our side's task, for `holdfast worker --tasks bench.programs.holdfast_tasks`."""

from __future__ import annotations

from typing import Any

from bench.board import body
from holdfast import task


@task("bench_noop")
def noop(n: int, filler: str = "") -> dict[str, Any]:
    return body(n)
