"""The interface between a worker and its executors.

A worker has one or more executors by name, and a task chooses one of them. The worker gives an executor claims; the
executor performs them and reports an outcome for each, never an exception. What user code requests while it runs is
answered by the worker's attempt services. An executor knows nothing of SQL, and the worker knows nothing of processes,
pipes or clusters.

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
    """The run's own transaction committed its success: nothing is left to write."""

    elapsed: float = 0.0


@dataclass(frozen=True, slots=True)
class TakenOver:
    """Another process holds the lease now and settles the attempt: the worker forgets the claim and writes nothing."""

    elapsed: float = 0.0


class Ended(NamedTuple):
    """One claim and how it ended here."""

    claim: Claim
    outcome: Outcome | Settled | TakenOver


INLINE = "inline"
"""The executor that every worker has. If it is the default one, claims and successes are logged at debug level."""

Report = Callable[[Sequence[Ended]], None]
StoreResult = Callable[[str, int, bytes], StoredResult]


class AttemptServices(Protocol):
    """What a running attempt may request of its worker. The notes never wait; the other calls return or raise."""

    def note_progress(self, ref: AttemptRef, report: str) -> None: ...

    def note_log(self, ref: AttemptRef, level: str, message: str) -> None: ...

    async def find_step(self, ref: AttemptRef, name: str) -> str | None: ...

    async def record_step(self, ref: AttemptRef, name: str, result: str) -> None:
        """Store the result of a step. Raise LeaseLost if the attempt does not hold its lease any more."""

    async def submit(self, ref: AttemptRef, task: str, parameters: Any, options: Mapping[str, Any]) -> str:
        """Create a child run and return its id. Raise ChildDiffers if the name refers to a different child."""

    async def stored_children(self, ref: AttemptRef) -> dict[str, str]:
        """Return what the attempts of the run have added, by name, each with a short description."""

    async def describe(self, ref: AttemptRef, details: Mapping[str, Any]) -> None:
        """Record where the attempt is executed. Raise LeaseLost if the attempt no longer holds its lease."""

    async def still_held(self, refs: Sequence[AttemptRef]) -> set[AttemptRef]:
        """Return those of these attempts whose leases this worker still holds; the others were taken over or ended.

        Raise DatabaseUnreachable if that is not known now.
        """


class RemoteAttempt(NamedTuple):
    """An attempt that a Ray job executes.

    `log_copied` says how much of the job's log has been copied, `cancelled_for` how many seconds ago the run was
    cancelled, and `node_id` where the job is, if that is known.
    """

    ref: AttemptRef
    submission_id: str
    log_copied: int = 0
    cancelled_for: float | None = None
    node_id: str | None = None


class RemoteAttempts(Protocol):
    """Attempts of all workers that Ray jobs execute. The calls raise DatabaseUnreachable.

    They are found by what the executor ray_job writes to `details` (`sql.remote_attempts`); an executor of another
    kind needs statements of its own.
    """

    async def look_after(self, address: str, every: float) -> list[RemoteAttempt]:
        """Return attempts at this address that no worker has looked at for so many seconds, and note that one does."""

    async def note(
        self, attempt: RemoteAttempt, copied: int, lines: Sequence[tuple[str, str]], details: Mapping[str, Any]
    ) -> bool:
        """Add lines to the log and note how much is `copied`. False if the attempt ended, or another worker did it."""

    async def over(self, refs: Sequence[AttemptRef]) -> set[AttemptRef]:
        """Return those of these attempts that have ended. Attempts of runs that are not known here are left out."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The maximum size of a result, the maximum size that is stored in the row, and how long stopping may take.

    `timeout` is the time limit, in seconds, of runs that have none of their own.
    """

    inline_result_bytes: int = 65536
    max_result_bytes: int = 64 * 1024 * 1024
    grace: float = 10.0
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class ChildLimits:
    """When a child process is replaced.

    After so many runs, when it has so much more memory (bytes) or so many more open descriptors than at its start, when
    it is so old (seconds; None for any age), and when it does not begin a run within `begin` seconds.
    """

    runs: int = 100_000
    memory: int = 512 * 1024 * 1024
    descriptors: int = 500
    age: float | None = None
    begin: float = 10.0


def _not_noted(why: str | None) -> None:
    """For executors without a worker that could note it."""


class ExecutorContext(NamedTuple):
    """What an executor gets from its worker: where to report, the attempt services, the database, and limits.

    `transactions` names the function that opens the run's own transaction, as `module:function`; its arguments are the
    database's URL and the worker's id. It is a name because child processes have to find the function too.
    `remote_attempts` is None where no attempts of other workers can be seen. `note_away` is called with the reason
    when the executor does not reach its cluster, and with None when it does again.
    """

    attempt_services: AttemptServices
    report: Report
    store: StoreResult
    limits: Limits
    database_url: str
    task_modules: tuple[str, ...]
    transactions: str
    remote_attempts: RemoteAttempts | None = None
    note_away: Callable[[str | None], None] = _not_noted


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
        """Return how many more claims make sense now: the free slots, and more if runs are tiny."""

    def stop(self, ref: AttemptRef, request: LeaseRequest) -> None:
        """Ask the code of this attempt to stop, and make it stop if it does not. Report it as `stopped_by` says."""

    def take_back(self, waiting_for: float = 0.0) -> list[Claim]:
        """Return claims that have waited this long and have not begun; the executor forgets them.

        With 0, no more runs begin at all; claims that are found not to have begun later are reported as NotBegun.
        """

    def kill(self) -> None:
        """End all runs at once. May be called from any thread.

        Only runs that had ended before may still be reported.
        """

    async def unbegun(self) -> list[Claim]:
        """After `kill`: return the claims that had certainly not begun, each once."""

    async def close(self) -> None:
        """Release threads and processes; runs that are left are killed and not reported."""
