"""A worker for one run: it acquires a single run, executes it in a child process, settles it and exits.

An RQ work-horse and a Ray job are such workers. They differ only in how they get their run: one claims it by its id,
the other takes it over from the worker that submitted the job.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.domain.execution import ChildLimits
from holdfast.domain.values import Claim
from holdfast.executors.child_slot import ChildSlot
from holdfast.executors.forked import EarlyChild
from holdfast.executors.process import ProcessExecutor
from holdfast.sql.statement import Op
from holdfast.worker import Worker, WorkerOptions

Acquire = Callable[[str], Op[Claim | None]]


class OneChild(ProcessExecutor):
    """A process executor for one run. It waits for its child, because no other worker would begin the run earlier.

    If its first child has already been started, that is `early`.
    """

    def __init__(self, *, limits: ChildLimits, early: EarlyChild | None = None) -> None:
        super().__init__(1, limits=limits)
        self._early = early
        self.make_slot = self._slot

    def _slot(self, *args: Any, **callbacks: Any) -> ChildSlot:
        early, self._early = self._early, None
        return ChildSlot(*args, **callbacks, early=early)

    def take_back(self, waiting_for: float = 0.0) -> list[Claim]:
        return super().take_back() if waiting_for == 0.0 else []


class OneRunWorker(Worker):
    """A worker for one run. It has everything that other workers have, but does not poll for more runs.

    `acquire` is called with the worker's id and returns the run, or None if it is not available.
    """

    def __init__(self, options: WorkerOptions, acquire: Acquire) -> None:
        super().__init__(options)
        self._acquire = acquire
        self.acquired = False

    async def _begin(self) -> None:
        worker_id = self._exchange.session.id
        claim: Claim | None = await self._database.transact(lambda: self._acquire(worker_id))
        if claim is not None:
            self.acquired = True
            self._exchange.begin([claim])
        self._exchange.leave_when_empty = True
