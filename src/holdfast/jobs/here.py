"""Where a call is made: with which client, and in which run, if any."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from holdfast.domain.context import RunContext
from holdfast.domain.errors import HoldfastError
from holdfast.domain.ids import new_id
from holdfast.domain.values import AttemptRef, KnownAs, RunRecord
from holdfast.jobs.handles import LoadResult, LoadTasks
from holdfast.runtime.settings import Settings


class Rings(Protocol):
    """The bell of a client."""

    def ring(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None: ...


@dataclass(frozen=True)
class Here:
    """The runtime of one call."""

    settings: Settings
    bell: Rings
    load_tasks: LoadTasks
    load_result: LoadResult
    run: RunContext | None = None

    @property
    def ref(self) -> AttemptRef | None:
        """The attempt that makes the call: what it adds is refused once it has lost its lease."""
        return self.run.ref if self.run is not None else None

    def ring(self, queues: Iterable[str]) -> None:
        self.bell.ring(list(queues))

    def name(self, job_id: str, key: str | None, kind: str = "") -> KnownAs:
        """Return the name of a child added here: the same for every attempt of a run, or for the same key in a job.

        `kind` sets the names of maps apart from those of tasks.
        """
        if self.run is not None and (self.run.job_id == job_id or key is None):
            return KnownAs(self.run.id, kind + self.run.child_name(key))
        return KnownAs(job_id, f"{kind}key {key}" if key is not None else f"{kind}{new_id()}")

    def names(self, job_id: str, key: str) -> list[KnownAs]:
        """Return the names that a task with this key may have, the most specific first."""
        own = [KnownAs(self.run.id, f"key {key}")] if self.run is not None and self.run.job_id == job_id else []
        return [*own, KnownAs(job_id, f"key {key}")]

    def asking(self, known_as: KnownAs) -> AbstractContextManager[None]:
        """Record the request in the calling run, if the child belongs to it."""
        if self.run is not None and known_as.origin == self.run.id:
            return self.run.asking(known_as.name)
        return nullcontext()

    def current_job_id(self) -> str:
        """The job of the run that makes the call. Raises HoldfastError where there is none."""
        if self.run is None:
            raise HoldfastError("there is no current job: this was called outside of a task that a worker executes")
        if self.run.job_id is None:
            raise HoldfastError(f"there is no current job: run {self.run.id} was submitted by itself, not in a job")
        return self.run.job_id

    def checked(self) -> Here:
        """The same, unless the run was asked to stop: then what it has to stop for is raised."""
        if self.run is not None:
            self.run.check()
        return self
