"""Who makes a call: with which settings, on whose behalf, and in which run, if any."""

from __future__ import annotations

import getpass
import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from holdfast.domain.context import RunContext, find_run
from holdfast.domain.errors import HoldfastError
from holdfast.domain.ids import new_id
from holdfast.domain.values import AttemptRef, KnownAs
from holdfast.runtime.settings import Settings
from holdfast.verbs.options import ANONYMOUS, Submitter, Template


def person() -> str:
    """The user of this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


@dataclass(frozen=True)
class Caller:
    """The caller of a verb. `submitter` is known where a token was checked, as in the API."""

    settings: Settings
    submitter: Submitter = ANONYMOUS
    templates: dict[Any, Template] = field(default_factory=dict, repr=False, compare=False)
    """What runs without options have in common, by the task as it was given."""

    @property
    def name(self) -> str:
        """The name of the token, or else the user of this process."""
        return self.submitter.name or person()

    @property
    def run(self) -> RunContext | None:
        """The run whose code makes the call."""
        return find_run()

    @property
    def attempt(self) -> AttemptRef | None:
        """The attempt that makes the call: what it adds is refused once it has lost its lease."""
        run = self.run
        return run.ref if run is not None else None

    def child_name(self, job_id: str, key: str | None, kind: str = "") -> KnownAs:
        """Return the name of a child added here: the same for every attempt of a run, or for the same key in a job.

        `kind` keeps the names of maps apart from those of tasks.
        """
        run = self.run
        if run is not None and (run.job_id == job_id or key is None):
            return KnownAs(run.id, kind + run.child_name(key))
        return KnownAs(job_id, f"{kind}key {key}" if key is not None else f"{kind}{new_id()}")

    def child_names(self, job_id: str, key: str) -> list[KnownAs]:
        """Return the names that a task with this key may have, the most specific first."""
        run = self.run
        own = [KnownAs(run.id, f"key {key}")] if run is not None and run.job_id == job_id else []
        return [*own, KnownAs(job_id, f"key {key}")]

    def requesting(self, known_as: KnownAs) -> AbstractContextManager[None]:
        """Record the request in the calling run, if the child belongs to it."""
        run = self.run
        if run is not None and known_as.origin == run.id:
            return run.asking(known_as.name)
        return nullcontext()

    def current_job_id(self) -> str:
        """The job of the run that makes the call. Raises HoldfastError if there is none."""
        run = self.run
        if run is None:
            raise HoldfastError("there is no current job: this was called outside of a task executed by a worker")
        if run.job_id is None:
            raise HoldfastError(f"there is no current job: run {run.id} does not belong to a job")
        return run.job_id

    def check_stop(self) -> None:
        """Raise RunCancelled or RunTimedOut if the calling run was asked to stop."""
        run = self.run
        if run is not None:
            run.check()
