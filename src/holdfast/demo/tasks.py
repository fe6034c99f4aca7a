"""The tasks of the demo's job: a forecast for each row of a slice, and a ranking of all of them."""

from __future__ import annotations

from typing import Any

from holdfast.domain.tasks import task
from holdfast.jobs import View
from holdfast.tasks.forecast import forecast


@task("demo_outlooks", tags=["demo"])
def outlooks(view: View, months: int, paths: int) -> list[dict[str, Any]]:
    """Forecast each scenario and region of the slice."""
    return [
        {**row, "median": forecast(**row, horizon_months=months, paths=paths)["terminal"]["p50"]} for row in view.read()
    ]


@task("demo_ranking", tags=["demo"])
def ranking(results: Any) -> dict[str, Any]:
    """Rank the outlooks of all slices."""
    ranked = sorted((one for slice_ in results for one in slice_), key=lambda one: one["median"])
    return {"counted": len(ranked), "slices": len(results), "best": ranked[-1], "worst": ranked[0]}
