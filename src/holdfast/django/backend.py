"""The Tasks backend: `TASKS = {"default": {"BACKEND": "holdfast.django.HoldfastBackend"}}`.

`enqueue` writes the run on Django's own connection, in the current transaction: a rollback undoes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import orjson
from asgiref.sync import sync_to_async
from django.db import OperationalError
from psycopg.errors import ProgramLimitExceeded

from holdfast import ops
from holdfast.django import databases
from holdfast.django.compat import BaseTaskBackend, TaskResultDoesNotExist, TaskResultStatus, task_enqueued
from holdfast.django.payloads import Arguments, encoded
from holdfast.django.results import is_task_run, make_result, task_result
from holdfast.django.tasks import HoldfastTask, check_options, option, policy_of, register, timeout_of
from holdfast.domain.ids import new_id, parse_id
from holdfast.domain.values import NewRun, Payload, Submitted
from holdfast.sql import task_results
from holdfast.sql.task_results import TaskResultRecord


@dataclass(frozen=True)
class Submission:
    """A checked call of a task, and the run that it will create."""

    task: Any
    arguments: Arguments
    new: NewRun


class HoldfastBackend(BaseTaskBackend):
    task_class = HoldfastTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @property
    def database(self) -> str:
        """The alias of the database that holds the runs."""
        return databases.chosen_alias(self.options)

    def validate_task(self, task: Any) -> None:
        """Django calls this wherever a task is declared. A valid task is registered, so that workers can run it."""
        super().validate_task(task)
        check_options(task)
        register(task, self.options)

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any], *, key: str | None = None) -> Any:
        """Create a run in the current transaction, or find the one that the same key created."""
        submission = self.prepare(task, args, kwargs, key=key)
        submitted = self.write(submission)
        result = self.result_of(submission, submitted)
        if submitted.created:
            task_enqueued.send_robust(sender=type(self), task_result=result)
        return result

    async def aenqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Like `enqueue`. The arguments are checked here; only the SQL runs in the thread that has the connection."""
        submission = self.prepare(task, args, kwargs)
        submitted = await sync_to_async(self.write, thread_sensitive=True)(submission)
        if not submitted.created:
            return await self.aget_result(submitted.run.id)
        result = self.result_of(submission, submitted)
        await task_enqueued.asend_robust(sender=type(self), task_result=result)
        return result

    def bulk_enqueue(self, task: Any, calls: Iterable[tuple[Sequence[Any], Mapping[str, Any]]]) -> list[Any]:
        """Create many runs of one task, all or none, in one statement."""
        submissions = [self.prepare(task, args, kwargs) for args, kwargs in calls]
        if not submissions:
            return []
        submitted = self.write_many(submissions)
        results = [self.result_of(*pair) for pair in zip(submissions, submitted, strict=True)]
        for result, one in zip(results, submitted, strict=True):
            if one.created:
                task_enqueued.send_robust(sender=type(self), task_result=result)
        return results

    def prepare(
        self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any], *, key: str | None = None
    ) -> Submission:
        """Check everything that can be checked without the database."""
        self.validate_task(task)
        arguments = encoded(args, kwargs)
        settings = databases.settings()
        dedupe = option(task, "dedupe") if key is None else None
        new = NewRun(
            id=new_id(),
            task=task.module_path,
            parameters=arguments.text,
            payload_hash=arguments.payload_hash,
            queue=task.queue_name,
            priority=int(task.priority),
            run_after=task.run_after,
            policy=self._policy(task),
            key=key,
            key_ttl=timedelta(seconds=settings.key_seconds),
            dedupe=_dedupe(dedupe),
            dedupe_window=timedelta(seconds=settings.dedupe_seconds),
            concurrency_key=option(task, "concurrency_key"),
        )
        return Submission(task, arguments, new)

    def _policy(self, task: Any) -> str:
        policy: dict[str, Any] = {**policy_of(task, self.options).to_json(), "backend": self.alias}
        timeout = timeout_of(task, self.options)
        if timeout is not None:
            policy["timeout"] = timeout.total_seconds()
        return orjson.dumps(policy).decode()

    def write(self, submission: Submission) -> Submitted:
        """Write one run, and wake workers once it is committed."""
        database, new = self.database, submission.new
        rings = new.run_after is None and databases.may_send_inline(database, new.queue)
        payload = Payload(new.id, new.parameters, new.payload_hash)
        try:
            submitted: Submitted = databases.run(database, ops.submit_one(new, payload, ring=rings, again=False))
        except OperationalError as error:
            # The server's notification queue is full, and the whole statement was rolled back.
            if not (rings and isinstance(error.__cause__, ProgramLimitExceeded)):
                raise
            databases.links(database).bell.suspend_inline()
            submitted = databases.run(database, ops.submit_one(new, payload, again=False))
        if submitted.rung:
            databases.links(database).bell.note_sent(new.queue)
        elif submitted.created:
            databases.ring(database, [new.queue], [submitted.run])
        return submitted

    def write_many(self, submissions: Sequence[Submission]) -> list[Submitted]:
        """Write many runs, all or none, and wake workers once they are committed."""
        database = self.database
        submitted: list[Submitted] = databases.run(database, ops.submit_many([one.new for one in submissions]))
        new = [one.run for one in submitted if one.created]
        databases.ring(database, {run.queue for run in new}, new)
        return submitted

    def result_of(self, submission: Submission, submitted: Submitted) -> Any:
        """The result of `enqueue`: for the new run, or for the one that the same request created before."""
        if not submitted.created:
            return self.get_result(submitted.run.id)
        return make_result(
            submission.task,
            id=submitted.run.id,
            status=TaskResultStatus.READY,
            enqueued_at=submitted.run.created_at,
            args=submission.arguments.args,
            kwargs=submission.arguments.kwargs,
        )

    def get_result(self, result_id: Any) -> Any:
        """Read a result created by any process, even if its queue or function no longer exists."""
        run_id = parse_id(result_id)
        record = databases.run(self.database, iter(task_results.read(run_id))) if run_id is not None else None
        if record is None or not is_task_run(record):
            raise TaskResultDoesNotExist(str(result_id))
        return task_result(record, self.alias, self._value(record))

    async def aget_result(self, result_id: Any) -> Any:
        return await sync_to_async(self.get_result, thread_sensitive=True)(result_id)

    def _value(self, record: TaskResultRecord) -> bytes | None:
        if record.result is None:
            return None
        if record.result.ref is None:
            return (record.result.text or "null").encode()
        return databases.links(self.database).runtime.load_result(record.result)

    def check(self, **kwargs: Any) -> list[Any]:
        from holdfast.django.checks import check_backend

        return list(check_backend(self))


def _dedupe(given: Any) -> str | timedelta:
    if given is None:
        return "off"
    return given if isinstance(given, str | timedelta) else timedelta(seconds=given)
