"""The Tasks backend: `TASKS = {"default": {"BACKEND": "holdfast.django.HoldfastBackend"}}`.

`enqueue` writes the run on Django's own connection, in the current transaction: a rollback takes the run along.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import orjson
from asgiref.sync import sync_to_async

from holdfast import ops
from holdfast.django import databases
from holdfast.django.compat import BaseTaskBackend, TaskResultDoesNotExist, TaskResultStatus, task_enqueued
from holdfast.django.payloads import Arguments, encoded
from holdfast.django.results import is_task_run, make_result, task_result
from holdfast.django.tasks import HoldfastTask, option, policy_of, register, timeout_of
from holdfast.domain.ids import new_id, parse_id
from holdfast.domain.values import NewRun, Payload, Submitted
from holdfast.sql import task_results
from holdfast.sql.statement import Op
from holdfast.sql.task_results import TaskResultRecord


@dataclass(frozen=True)
class Enqueued:
    """A run that is about to be written, for one call of a task."""

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
        """Django calls this wherever a task is declared: what is valid can be run by the workers of this process."""
        super().validate_task(task)
        register(task, self.options)

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Make a run in the current transaction."""
        asked = self.prepare(task, args, kwargs)
        submitted = self.write(asked)
        result = self.result_of(asked, submitted)
        if submitted.created:
            task_enqueued.send_robust(sender=type(self), task_result=result)
        return result

    async def aenqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The same; the arguments are checked here, and only the SQL runs in the thread that has the connection."""
        asked = self.prepare(task, args, kwargs)
        submitted = await sync_to_async(self.write, thread_sensitive=True)(asked)
        result = self.result_of(asked, submitted)
        if submitted.created:
            await task_enqueued.asend_robust(sender=type(self), task_result=result)
        return result

    def bulk_enqueue(self, task: Any, calls: Iterable[tuple[Sequence[Any], Mapping[str, Any]]]) -> list[Any]:
        """Make many runs of one task, all or none, in one statement."""
        asked = [self.prepare(task, args, kwargs) for args, kwargs in calls]
        if not asked:
            return []
        made = self.write_many(asked)
        results = [self.result_of(one, submitted) for one, submitted in zip(asked, made, strict=True)]
        for result, submitted in zip(results, made, strict=True):
            if submitted.created:
                task_enqueued.send_robust(sender=type(self), task_result=result)
        return results

    def prepare(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any], *, key: str | None = None) -> Enqueued:
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
        return Enqueued(task, arguments, new)

    def _policy(self, task: Any) -> str:
        policy: dict[str, Any] = {**policy_of(task, self.options).to_json(), "backend": self.alias}
        timeout = timeout_of(task, self.options)
        if timeout is not None:
            policy["timeout"] = timeout.total_seconds()
        return orjson.dumps(policy).decode()

    def write(self, asked: Enqueued) -> Submitted:
        """Write one run, and wake workers once it is committed."""
        database, new = self.database, asked.new
        rings = new.run_after is None and databases.rides(database, new.queue)
        payload = Payload(new.id, new.parameters, new.payload_hash)
        submitted: Submitted = databases.run(database, ops.submit_one(new, payload, ring=rings, again=False))
        if submitted.created and not submitted.rung:
            databases.ring(database, [new.queue], [submitted.run])
        return submitted

    def write_many(self, asked: Sequence[Enqueued]) -> list[Submitted]:
        database = self.database
        made: list[Submitted] = databases.run(database, ops.submit_many([one.new for one in asked]))
        new = [one.run for one in made if one.created]
        databases.ring(database, {run.queue for run in new}, new)
        return made

    def result_of(self, asked: Enqueued, submitted: Submitted) -> Any:
        """What `enqueue` returns: the run that was made, or the one that the same request had made before."""
        if not submitted.created:
            return self.get_result(submitted.run.id)
        return make_result(
            asked.task,
            id=submitted.run.id,
            status=TaskResultStatus.READY,
            enqueued_at=submitted.run.created_at,
            args=asked.arguments.args,
            kwargs=asked.arguments.kwargs,
        )

    def get_result(self, result_id: Any) -> Any:
        """Read a result, whichever process made it, even if its queue or its function is gone by now."""
        run_id = parse_id(result_id)
        record = databases.run(self.database, _read(run_id)) if run_id is not None else None
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
        return databases.services_of(self.database).runtime.load_result(record.result)

    def check(self, **kwargs: Any) -> list[Any]:
        from holdfast.django.checks import check_backend

        return list(check_backend(self))


def _dedupe(given: Any) -> str | timedelta:
    if given is None:
        return "off"
    return given if isinstance(given, str | timedelta) else timedelta(seconds=given)


def _read(run_id: str) -> Op[TaskResultRecord | None]:
    return (yield from task_results.read(run_id))
