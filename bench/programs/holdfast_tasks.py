"""Our side's task, for `holdfast worker --tasks bench.programs.holdfast_tasks`."""

from __future__ import annotations

from typing import Any

from bench.board import body
from holdfast import task


@task("bench_noop")
def noop(n: int, filler: str = "") -> dict[str, Any]:
    return body(n)


@task("bench_slice")
def part(view: Any) -> int:
    return int(view.offset)


@task("bench_gather")
def gather(results: Any, n: int) -> dict[str, Any]:
    return {"parts": len(results), **body(n)}
