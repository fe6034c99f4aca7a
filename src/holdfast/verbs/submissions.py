"""Submitting runs: the requests are prepared once, ids and all, and performed as often as it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from holdfast import ops
from holdfast.client.requests import Batches, Submission, prepare, prepare_batches
from holdfast.domain.errors import BadInput
from holdfast.domain.ids import new_ids
from holdfast.domain.tasks import Task
from holdfast.domain.values import NewRun, Payload, Submitted
from holdfast.sql.statement import Op
from holdfast.verbs.caller import Caller

AnyTask = Task | str | Callable[..., Any]


class Submitting:
    """Makes the operation that submits a run, as often as it takes.

    Only when it is performed again may it find what it made before: the id was made here, for it alone.
    """

    def __init__(self, new: NewRun) -> None:
        self.new = new
        self._again = False

    def ring(self) -> None:
        """Have the statement ring for the run's queue."""
        self.new = replace(self.new, ring=True)

    def __call__(self) -> Op[Submitted]:
        again, self._again = self._again, True
        return ops.submit(self.new, again=again)


def mute(make_op: object) -> bool:
    """Remove the notification from the statement of a submit; False if it had none."""
    if not isinstance(make_op, Submitting) or not make_op.new.ring:
        return False
    make_op.new = replace(make_op.new, ring=False)
    return True


class SubmittingMany:
    """The same for runs that share everything but their payload, by the batch."""

    def __init__(self, head: NewRun, batches: Batches) -> None:
        self._head = head
        self._batches: Batches | list[list[Payload]] = batches
        self._again = False

    def at_once(self) -> None:
        """Check all of them first and write them with one statement, for a transaction of the caller."""
        self._batches = [[payload for batch in self._batches for payload in batch]]

    def __call__(self) -> Op[list[Submitted]]:
        again, self._again = self._again, True
        return ops.submit_batches(self._head, self._batches, together=len(self._batches) > 1, again=again)


def many_of(
    task: AnyTask | Iterable[Submission], many: Iterable[Mapping[str, Any]] | None, options: Mapping[str, Any]
) -> list[Submission] | None:
    """The submissions of a mixed list; None if `many` has the parameters of one task."""
    if many is not None and (isinstance(task, str) or not isinstance(task, Iterable)):
        return None
    if many is None and isinstance(task, Iterable) and not isinstance(task, str):
        return list(task)
    raise BadInput("submit_many takes a task and a list of parameters, or a list of Submission values")


def mixed(caller: Caller, submissions: Sequence[Submission]) -> Callable[[], Op[list[Submitted]]]:
    """Submit runs of different tasks."""
    made = [
        prepare(caller.settings, one.task, one.parameters, asker=caller.submitter, id=id_, **one.options)
        for one, id_ in zip(submissions, new_ids(len(submissions)), strict=True)
    ]
    return partial(ops.submit_many, made)


def alike(
    caller: Caller, task: AnyTask, many: Sequence[Any], options: Mapping[str, Any]
) -> Callable[[], Op[list[Submitted]]]:
    """Submit runs of one task that share their options."""
    if not many:
        return partial(ops.submit_many, ())
    head, batches = prepare_batches(caller.settings, task, many, asker=caller.submitter, **options)
    if head.key is None and head.dedupe == "off" and not head.depends_on:
        return SubmittingMany(head, batches)
    return partial(ops.submit_many, [replace(head, **payload._asdict()) for batch in batches for payload in batch])
