"""A session: the life of one worker id, from its registration until it is given up or lost.

A worker that could not renew in time starts a new session under a fresh id. Whatever belonged to the old one can then
never be mistaken for the new one's: not by the database, which fences by id, and not in here.
"""

from __future__ import annotations

import os
from datetime import timedelta

from holdfast.domain.ids import new_id
from holdfast.domain.tasks import registry
from holdfast.domain.values import AttemptRef, Claim, Renewal, WorkerInfo
from holdfast.processes.environment import describe_environment
from holdfast.worker.options import WorkerOptions


class WorkerSession:
    def __init__(self) -> None:
        self.id = new_id()
        self.held: dict[str, Claim] = {}
        self.over = False
        self.completed = 0
        self.failed = 0
        self._strange: frozenset[AttemptRef] = frozenset()

    def info(self, options: WorkerOptions, version: str) -> WorkerInfo:
        names = tuple(options.executable_tasks())
        return WorkerInfo(
            id=self.id,
            hostname=options.hostname,
            pid=os.getpid(),
            name=options.title,
            executor=options.default_executor,
            version=version,
            slots=options.executor.slots,
            lease=timedelta(seconds=options.lease),
            queues=options.queues,
            tasks=names,
            environment=describe_environment(registry.get(name).fn.__module__ for name in names),
        )

    def unknown_leases(self, renewal: Renewal) -> frozenset[AttemptRef]:
        """Leases that the database says are ours and that we never heard of, twice in a row.

        They come from a claim whose answer was lost; once may be a claim whose answer is on its way.
        """
        unknown = frozenset(ref for ref in renewal.held if ref.run_id not in self.held)
        known_for_long = unknown & self._strange
        self._strange = unknown
        return known_for_long

    def counts(self) -> tuple[int, int]:
        """Completed and failed since they were last asked for."""
        counted = self.completed, self.failed
        self.completed = self.failed = 0
        return counted
