"""The summary: how many runs each model has had, by status."""

from __future__ import annotations

from typing import Any

from holdfast.domain.records import TaskSummary
from holdfast.http import reading
from holdfast.http.answers import Answer, answer
from holdfast.http.call import Call
from holdfast.http.openapi.parts import operation, ref, says
from holdfast.http.routes import Noun, Route
from holdfast.ops.figures import summarize

COUNTED = ("created", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED", "retried", "lost")


def show(call: Call) -> Answer:
    reading.query(call)
    shown = [_document(task) for task in call.service.database.perform(summarize)]
    total = {name: sum(document[name] for document in shown) for name in COUNTED}
    return answer({"items": shown, "total": total})


def _document(task: TaskSummary) -> dict[str, Any]:
    return {
        "model": task.task,
        "created": task.created,
        "PENDING": task.pending,
        "RUNNING": task.running,
        "SUCCEEDED": task.succeeded,
        "FAILED": task.failed,
        "CANCELLED": task.cancelled,
        "retried": task.retried,
        "lost": task.lost,
        "mean_seconds": task.mean_seconds,
    }


NOUN = Noun(
    "summary",
    "Counts by model and status.",
    [
        Route(
            "GET",
            "/summary",
            show,
            "runs:read",
            operation(
                "getSummary",
                "Summarize runs",
                "By model and status, from counters that include pruned runs.",
                answers={200: says("By model.", ref("Summary"))},
            ),
        ),
    ],
)
