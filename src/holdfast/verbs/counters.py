"""Counters of runs, which outlive the runs themselves."""

from __future__ import annotations

from typing import Any

from holdfast.documents.others import summary_document
from holdfast.ops.figures import summarize
from holdfast.sql import tallies
from holdfast.sql.statement import Op
from holdfast.verbs import forms
from holdfast.verbs.caller import Caller
from holdfast.verbs.openapi import ref, says
from holdfast.verbs.verb import Endpoint, MakeOp, verb


@verb(
    Endpoint("GET /summary", "runs:read", "getSummary", "Summarize runs"),
    "By model and status, from counters that include pruned runs.",
    answers={200: says("The counts, by model.", ref("Summary"))},
    form=forms.document(dict, dict),
)
def summary(caller: Caller, /) -> MakeOp[dict[str, Any]]:
    """Return how many runs each model has had, by status."""
    return _summary


def _summary() -> Op[dict[str, Any]]:
    return summary_document((yield from summarize()))


@verb()
def totals(caller: Caller, /) -> MakeOp[dict[tallies.Tally, tuple[int, float]]]:
    """Return every counter, by (task, kind, bucket)."""
    return lambda: iter(tallies.totals())
