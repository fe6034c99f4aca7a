"""A user's own transactions, which keep their locks until they commit, whatever workers do in the meantime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast import ops
from holdfast.domain.values import NewRun
from holdfast.sql.statement import Op
from tests.explore.jobs_cases import Case
from tests.explore.jobs_programs import Part, repeated


def _outside(case: Case, who: int) -> NewRun:
    """A run without a job that waits for a run of the job."""
    run = case.run(f"outside{who}", "a")
    return replace(run, job_id=None)


def _all(case: Case, who: int) -> Op[Any]:
    """Everything that a user may do in one transaction."""
    yield from ops.add_tasks([case.run(f"added{who}")], None)
    yield from ops.submit_many([_outside(case, who)])
    yield from ops.cancel(case.ids["c"], "not this one")


def _several(case: Case, who: int) -> Op[Any]:
    yield from ops.submit_many([_outside(case, who)])
    yield from ops.add_tasks([case.run(f"added{who}", "b")], None)


def _open(does: str, make_op: Callable[[Case, int], Op[Any]], *names: str) -> Part:
    """A request inside the caller's transaction, which is retried as a whole if it could not commit."""
    return repeated(does, make_op, *names, begin=True)


USER: dict[str, Part] = {
    "user_adds": _open("add", lambda case, who: ops.add_tasks([case.run(f"added{who}")], None), "added"),
    "user_depends": _open("add", lambda case, who: ops.submit_many([_outside(case, who)]), "outside"),
    "user_cancels_c": _open("cancel", lambda case, who: ops.cancel(case.ids["c"], "not this one"), "c"),
    "user_cancels_a": _open("cancel", lambda case, who: ops.cancel(case.ids["a"], "not this one"), "a"),
    "user_retries_a": Part(
        _open("retry", lambda case, who: ops.retry(case.ids["a"], f"person {who}")).make, None, "retry", ("a",)
    ),
    "user_does_all": _open("several", _all, "added", "outside"),
    "user_does_several": _open("several", _several, "added", "outside"),
}
