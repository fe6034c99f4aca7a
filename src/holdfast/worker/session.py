"""A worker session: the life of one worker id, from its registration until the worker leaves or loses it.

A worker that could not renew in time starts a new session with a new id. Nothing of the old session can then be
mistaken for a part of the new one: not by the database, which fences by id, and not by the worker.
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
    """The id, and the claims that are `held` under it by the ids of their runs. `over` once the session is lost."""

    def __init__(self) -> None:
        self.id = new_id()
        self.held: dict[str, Claim] = {}
        self.over = False
        self.completed = 0
        self.failed = 0
        self._unknown: frozenset[AttemptRef] = frozenset()

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
        """Return leases of this session that the worker does not know, if they were reported by two renewals in a row.

        They come from a claim whose response was lost. Reported once, it may be a claim whose response is on its way.
        """
        unknown = frozenset(ref for ref in renewal.held if ref.run_id not in self.held)
        known_for_long = unknown & self._unknown
        self._unknown = unknown
        return known_for_long

    def counts(self) -> tuple[int, int]:
        """Return how many runs were completed and how many failed since the last call."""
        counted = self.completed, self.failed
        self.completed = self.failed = 0
        return counted
