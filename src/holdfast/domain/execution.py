"""The interface between a worker and its executors.

A worker has one or more executors by name, and a task chooses one of them. The worker gives an executor claims; the
executor performs them and reports an outcome for each, never an exception. The worker's
attempt services answer the requests of running user code. Executors do not use SQL, and the worker does not deal with
processes, pipes or clusters.

To add an executor, implement `Executor`, add its factory to `assembly.worker.EXECUTORS` and its name to
`domain.tasks.ExecutorName`. An executor that starts a process elsewhere may leave the rest of the attempt to that
process: once it holds the lease itself, the executor reports `TakenOver`. Details about where an attempt runs (node,
address, external ids) belong in the column `details` of `leases`, which becomes `attempts.details` when the attempt
ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from holdfast.domain.context import OwnTransaction
from holdfast.domain.reasons import LeaseRequest
from holdfast.domain.settling import Outcome
from holdfast.domain.values import AttemptRef, Claim, StoredResult


@dataclass(frozen=True, slots=True)
class Settled:
    """The run's own transaction has committed its success, so nothing is left to write."""

    elapsed: float = 0.0


@dataclass(frozen=True, slots=True)
class TakenOver:
    """Another process holds the lease now and settles the attempt: the worker forgets the claim and writes nothing."""

    elapsed: float = 0.0


class Ended(NamedTuple):
    """A claim and how it ended in this executor."""

    claim: Claim
    outcome: Outcome | Settled | TakenOver


INLINE = "inline"
"""The executor that every worker has. If it is the default one, claims and successes are logged at debug level."""

Report = Callable[[Sequence[Ended]], None]
StoreResult = Callable[[str, int, bytes], StoredResult]


class AttemptServices(Protocol):
    """What a running attempt may request from its worker. The `note_` calls never wait; the others return or raise."""

    def note_progress(self, ref: AttemptRef, report: str) -> None: ...

    def note_log(self, ref: AttemptRef, level: str, message: str) -> None: ...

    async def find_step(self, ref: AttemptRef, name: str) -> str | None: ...

    async def record_step(self, ref: AttemptRef, name: str, result: str) -> None:
        """Store the result of a step. Raise LeaseLost if the attempt no longer holds its lease."""

    async def submit(self, ref: AttemptRef, task: str, parameters: Any, options: Mapping[str, Any]) -> str:
        """Create a child run and return its id. Raise ChildDiffers if the name refers to a different child."""

    async def stored_children(self, ref: AttemptRef) -> dict[str, str]:
        """Return the children that the attempts of the run have added, by name, each with a short description."""

    async def describe(self, ref: AttemptRef, details: Mapping[str, Any]) -> None:
        """Record where the attempt is executed. Raise LeaseLost if the attempt no longer holds its lease."""

    async def still_held(self, refs: Sequence[AttemptRef]) -> set[AttemptRef]:
        """Return the attempts whose leases this worker still holds; the others were taken over or have ended.

        Raise DatabaseUnreachable if this cannot be determined now.
        """


class RemoteAttempt(NamedTuple):
    """An attempt that a Ray job executes.

    `log_copied` is how much of the job's log has been copied, `cancelled_for` the seconds since the run was cancelled,
    and `node_id` the node of the job, if known.
    """

    ref: AttemptRef
    submission_id: str
    log_copied: int = 0
    cancelled_for: float | None = None
    node_id: str | None = None


class RemoteAttempts(Protocol):
    """The attempts of all workers that are executed as Ray jobs. The calls raise DatabaseUnreachable.

    They are found by the `details` that the executor ray_job writes (`sql.remote_attempts`); another executor needs its
    own statements.
    """

    async def look_after(self, address: str, every: float) -> list[RemoteAttempt]:
        """Return attempts at this address that no worker has checked for `every` seconds, and mark them as checked."""

    async def note(
        self, attempt: RemoteAttempt, copied: int, lines: Sequence[tuple[str, str]], details: Mapping[str, Any]
    ) -> bool:
        """Add lines to the log and record how much was `copied`. False if the attempt ended or another did so."""

    async def over(self, refs: Sequence[AttemptRef]) -> set[AttemptRef]:
        """Return the attempts that have ended. Attempts of unknown runs are left out."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The maximum size of a result, the maximum size that is stored in the row, and how long stopping may take.

    `timeout` is the default time limit in seconds, for runs without one.
    """

    inline_result_bytes: int = 65536
    max_result_bytes: int = 64 * 1024 * 1024
    grace: float = 10.0
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class ChildLimits:
    """When a child process is replaced.

    After this number of runs, when it has this much more memory (bytes) or this many more open descriptors than at its
    start, at this age (seconds; None for no limit), and when it does not begin a run within `begin` seconds.
    """

    runs: int = 100_000
    memory: int = 512 * 1024 * 1024
    descriptors: int = 500
    age: float | None = None
    begin: float = 10.0


def _ignore_away(why: str | None) -> None:
    """The default for executors that are not opened by a worker."""


class ExecutorContext(NamedTuple):
    """What an executor gets from its worker: where to report, the attempt services, the database, and limits.

    `transactions` names the function that opens the run's own transaction, as `module:function`; its arguments are the
    database's URL and the worker's id. It is a name because child processes have to find the function too.
    `remote_attempts` is None if attempts of other workers are not accessible. `note_away` is called with the reason
    when the executor cannot reach its cluster, and with None when it can again.
    """

    attempt_services: AttemptServices
    report: Report
    store: StoreResult
    limits: Limits
    database_url: str
    task_modules: tuple[str, ...]
    transactions: str
    remote_attempts: RemoteAttempts | None = None
    note_away: Callable[[str | None], None] = _ignore_away


def transactions_of(name: str) -> Callable[[str, str], OwnTransaction]:
    module, _, function = name.partition(":")
    found: Callable[[str, str], OwnTransaction] = getattr(import_module(module), function)
    return found


class Executor(Protocol):
    """Performs claims. All methods but `kill` are called from the worker's loop."""

    name: str
    slots: int

    async def open(self, context: ExecutorContext, /) -> None:
        """Prepare to perform claims."""

    def give(self, worker_id: str, claims: Sequence[Claim]) -> None:
        """Perform these claims as soon as possible, and report each exactly once."""

    def room(self) -> int:
        """Return how many more runs to claim now: the free slots, and more if runs are tiny."""

    def stop(self, ref: AttemptRef, request: LeaseRequest) -> None:
        """Ask the code of this attempt to stop, and make it stop if it does not. Report what `stopped_by` returns."""

    def take_back(self, waiting_for: float = 0.0) -> list[Claim]:
        """Return claims that have waited this long and have not begun; the executor forgets them.

        With 0, no more runs begin; claims that turn out later not to have begun are reported as NotBegun.
        """

    def kill(self) -> None:
        """End all runs at once. May be called from any thread.

        Only runs that had ended before may still be reported.
        """

    async def unbegun(self) -> list[Claim]:
        """After `kill`: return the claims that had certainly not begun, each once."""

    async def close(self) -> None:
        """Release threads and processes; runs that are left are killed and not reported."""
