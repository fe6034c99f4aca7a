"""The other one of two tasks that share a queue, for workers that each know only one."""

from __future__ import annotations

from typing import Any

from bench.board import body
from holdfast import task


@task("bench_mixed_two")
def mixed_two(n: int) -> dict[str, Any]:
    return body(n)
