"""The tasks of the sweep. A worker finds them with `--tasks examples.scenario_sweep.tasks`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from examples.scenario_sweep.attachments import attach, place_for
from examples.scenario_sweep.chart import scatter

from holdfast import Retry, current_run, task
from holdfast.jobs import View, add_task_to_current_job, collect
from holdfast.jobs import map as map_over
from holdfast.jobs.datasets import ParquetFiles
from holdfast.tasks.forecast import forecast

RETRY = Retry(max_attempts=3, delays=(1, 5), no_retry_on=(ValueError,))


@task("sweep.plan", retry=RETRY)
async def plan(path: str, chunk_size: int, paths: int) -> dict[str, Any]:
    """Map the forecast over the sets in a file, without reading them, and have the results collected."""
    handle = await map_over("sweep.forecast", ParquetFiles(path), chunk_size=chunk_size, paths=paths)
    table = await collect(handle, into="sweep.table")
    return {"chunks": len(handle), "table": table.id}


@task("sweep.forecast", retry=RETRY)
def forecast_chunk(view: View, paths: int) -> list[dict[str, Any]]:
    """Forecast every set of a slice; a row for each says what it was given and what came out."""
    rows = []
    for given in view.read():
        asked = {name: given[name] for name in ("scenario", "region", "horizon_months", "seed")}
        found = forecast(**asked, paths=paths)
        risk = found["value_at_risk"]
        outcome = {name: found[name] for name in ("expected_growth", "probability_of_decline", "objective")}
        rows.append({"set": given["set"], **asked, **outcome, "loss": risk["loss"], "p50": found["terminal"]["p50"]})
    return rows


@task("sweep.table", retry=RETRY)
async def make_table(results: Sequence[list[dict[str, Any]]]) -> dict[str, Any]:
    """Write one table of everything, in the order of the sets, and have it drawn once this has succeeded."""
    rows = [row for chunk in results for row in chunk]
    path = place_for("table.parquet")
    table = ParquetFiles.write(path, rows)
    view = View.of(table).reference()
    chart = await add_task_to_current_job("sweep.chart", {"view": view}, key="chart", when="finish")
    best = sorted(rows, key=lambda row: -row["objective"])[:5]
    return {"rows": len(rows), "best": best, "chart": chart, "artifact": attach(path, "application/vnd.apache.parquet")}


@task("sweep.chart", retry=RETRY)
def draw_chart(view: View) -> dict[str, Any]:
    """Draw growth against loss, a dot for each set."""
    points = [(row["scenario"], row["loss"], row["expected_growth"]) for row in view.read()]
    current_run().log(f"{len(points)} dots")
    path = place_for("chart.svg")
    path.write_text(scatter(points, x="loss in the worst 5 %", y="expected growth"), encoding="utf-8")
    return {"dots": len(points), "artifact": attach(path, "image/svg+xml")}
