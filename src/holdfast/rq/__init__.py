"""Execution by RQ's workers. Redis only carries ids of runs; Postgres decides whether they may be executed.

    HOLDFAST_DOORBELL=rq rq worker --serializer rq.serializers.JSONSerializer --job-class holdfast.rq.RunJob default

A message that an `rq worker` receives calls `execute_run` in its work-horse. The work-horse is then a Holdfast worker
for one run: it registers, claims the run by its id, has it performed in a child process that it can kill, renews its
lease meanwhile, writes the result subject to the fence, and leaves. If the claim finds nothing, because the message was
a duplicate, outdated, out of order or forged, nothing happens.

    execution   one run in one work-horse, which ends with the `rq worker` that forked it
    messages    the job class, which accepts only Holdfast's messages

The submitter's side is in `doorbells.rq`, and `runtime.rq_sweeper` resends messages that were lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.rq.messages import RunJob

__all__ = ["RunJob", "execute_run"]


def execute_run(run_id: str) -> None:
    """Execute a run if it is ready and no worker holds it. RQ calls this; anything but the id of a run is refused."""
    from holdfast.rq.execution import execute

    execute(run_id)


def __getattr__(name: str) -> Any:
    if name == "RunJob":
        from holdfast.rq.messages import RunJob

        return RunJob
    raise AttributeError(f"module 'holdfast.rq' has no attribute {name!r}")
