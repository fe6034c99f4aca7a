"""The backends that replace Django's dummy and immediate backends when Django's own tests are run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.db import connection, connections

from holdfast.assembly.worker import WorkerRequest, worker_options
from holdfast.django import HoldfastBackend, announcing, databases
from holdfast.django.models import Run
from holdfast.runtime.runtime import Runtime
from holdfast.worker import Worker


class Listing(HoldfastBackend):
    """Can list its results and forget them."""

    @property
    def results(self) -> list[Any]:
        def read() -> list[Any]:
            return [self.get_result(str(run.id)) for run in Run.objects.order_by("id")]

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return read()
        found: list[Any] = _in_thread(read)
        return found

    def clear(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "truncate holdfast.runs, holdfast.ready, holdfast.waiting, holdfast.leases, holdfast.attempts cascade"
            )


class Running(HoldfastBackend):
    """Has a worker run a task before `enqueue` returns."""

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        result = super().enqueue(task, args, kwargs)
        _in_thread(self._work)
        result.refresh()
        return result

    async def aenqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        result = await super().aenqueue(task, args, kwargs)
        await asyncio.to_thread(self._work)
        await result.arefresh()
        return result

    def _work(self) -> None:
        url = databases.url_of(self.database)
        with Runtime(replace(databases.settings(), database_url=url)) as runtime:
            request = WorkerRequest(executor="inline", tasks=("holdfast.django.setup",), until_empty=True)
            asyncio.run(Worker(worker_options(runtime, request)).serve())
        announcing.flush()


def _in_thread(work: Any) -> Any:
    """Call `work` in a thread without an event loop, where Django allows database access."""
    found: list[Any] = []

    def run() -> None:
        announcing.start()
        found.append(work())
        connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0] if found else None
