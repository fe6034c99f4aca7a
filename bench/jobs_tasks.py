"""The tasks of the jobs benchmark: as little as a task can do."""

from __future__ import annotations

from typing import Any

from holdfast import task


@task("bench.alone", executor="inline")
def alone(n: int) -> dict[str, Any]:
    return {"ok": n}


@task("bench.slice", executor="inline")
def slice_(view: Any) -> dict[str, Any]:
    return {"ok": view.offset}


@task("bench.join", executor="inline")
def join(results: Any) -> dict[str, Any]:
    total = count = 0
    for one in results:
        total += one["ok"]
        count += 1
    return {"count": count, "sum": total}
