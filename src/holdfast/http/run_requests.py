"""From the body of a request to the run that it requests."""

from __future__ import annotations

from typing import Any

from holdfast.domain.errors import BadInput, Problem
from holdfast.domain.tasks import registry
from holdfast.domain.values import NewRun
from holdfast.http.call import Call
from holdfast.http.reading import checked_object, instant, refused
from holdfast.verbs.preparation import OPTIONS, prepare

FIELDS = ("model", "parameters", *OPTIONS)


def new_run(call: Call, body: Any, key: str | None = None, pointer: str = "", dedupe: str = "active") -> NewRun:
    """Check a request for a run. Every problem has a pointer into the body.

    `dedupe` holds where neither the request nor its task say anything about duplicates.
    """
    asked = checked_object(body, FIELDS, pointer)
    model = asked.get("model")
    if not isinstance(model, str):
        raise refused([Problem(f"{pointer}/model", "must be the name of a task" if "model" in asked else "missing")])
    parameters = {} if asked.get("parameters") is None else asked["parameters"]
    if not isinstance(parameters, dict):
        raise refused([Problem(f"{pointer}/parameters", "must be an object")])
    options = {name: asked[name] for name in OPTIONS if asked.get(name) is not None}
    if key is not None and options.setdefault("key", key) != key:
        raise refused([Problem(f"{pointer}/key", "differs from the Idempotency-Key header; send one of them")])
    if "run_after" in options:
        options["run_after"] = instant(options["run_after"], f"{pointer}/run_after")
    task = registry.get(model)
    return prepare(
        call.settings,
        task,
        parameters,
        submitter=call.caller.submitter,
        default_dedupe=dedupe if task.dedupe == "off" and not task.has_own_dedupe else None,
        **options,
    )


def new_runs(call: Call, body: Any, most: int) -> list[NewRun]:
    """Check a request for several runs, each as in `new_run`; but of many, each is meant unless it says otherwise."""
    asked = checked_object(body, ("runs",)).get("runs")
    if not isinstance(asked, list) or not 1 <= len(asked) <= most:
        raise refused([Problem("/runs", f"must be a list of 1 to {most} requests")])
    made, problems = [], []
    for index, one in enumerate(asked):
        pointer = f"/runs/{index}"
        try:
            made.append(new_run(call, one, None, pointer, dedupe="off"))
        except BadInput as error:
            problems += [Problem(_under(pointer, p.pointer), p.detail) for p in error.problems]
    if problems:
        raise refused(problems[:20])
    return made


def _under(pointer: str, inner: str) -> str:
    return inner if inner.startswith(pointer) else pointer + inner
