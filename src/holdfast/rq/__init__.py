"""Execution by RQ's workers. Redis carries nothing but ids of runs; Postgres decides what they are worth.

    HOLDFAST_DOORBELL=rq rq worker --serializer rq.serializers.JSONSerializer --job-class holdfast.rq.RunJob default

A message that an `rq worker` takes calls `execute_run` in its work-horse. The work-horse becomes a worker of ours for
the length of one run: it registers, claims that run by its id, has it performed in a child process that it can kill,
renews its lease meanwhile, settles how it ended behind the fence, and leaves. Whatever the message was (double, old,
out of order, made up), a claim that finds nothing is the end of it.

    execution   one run in one work-horse
    messages    the job class that takes no other message than ours
    bell        the submitter's side: messages for runs that were just made
    sweeper     messages again, for runs whose first one was lost, or that were made ready since
    horse       what a work-horse owes the worker that forked it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.rq.messages import RunJob

__all__ = ["RunJob", "execute_run"]


def execute_run(run_id: str) -> None:
    """Execute a run if it is ready and nobody holds it. This is what RQ calls; anything but a run's id is refused."""
    from holdfast.rq.execution import execute

    execute(run_id)


def __getattr__(name: str) -> Any:
    if name == "RunJob":
        from holdfast.rq.messages import RunJob

        return RunJob
    raise AttributeError(f"module 'holdfast.rq' has no attribute {name!r}")
