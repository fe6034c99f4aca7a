"""Settings and parts of a worker, and which of its executors performs a task."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.domain.doorbell import Listener
from holdfast.domain.errors import ConfigurationError
from holdfast.domain.execution import Executor, Limits, StoreResult
from holdfast.domain.tasks import registry
from holdfast.domain.values import Claim, NewRun
from holdfast.worker.figures import Figures

if TYPE_CHECKING:
    from holdfast.worker.upkeep import Service

Prepare = Callable[[str, Any, Mapping[str, Any]], NewRun]


def _no_store(run_id: str, attempt: int, text: bytes) -> Any:
    raise ConfigurationError("this worker has no store for large results; set HOLDFAST_ARTIFACTS")


def _no_children(task: str, parameters: Any, options: Mapping[str, Any]) -> NewRun:
    raise ConfigurationError("this worker was started without support for child runs")


@dataclass(frozen=True)
class WorkerOptions:
    """Settings and parts of a worker. All durations are in seconds.

    `executors` are the executors of this worker by name. A task chooses one with its `executor` option; all other tasks
    get the one named `default_executor`, which the worker is registered with. `prepare` makes a child run from a name,
    parameters and options; `store` keeps large results. `services` extend the upkeep services that every
    worker has; `figures` counts the attempts that the worker starts and ends. For the first `quiet_start` seconds, the
    worker only executes the runs that it has: it looks for no others, receives no hints and does no upkeep.
    """

    database_url: str
    executors: Mapping[str, Executor]
    default_executor: str
    listener: Listener
    queues: tuple[str, ...] | None = None
    task_modules: tuple[str, ...] = ()
    lease: float = 60.0
    renew_every: float = 15.0
    limits: Limits = field(default_factory=Limits)
    store: StoreResult = _no_store
    prepare: Prepare = _no_children
    name: str = ""
    until_empty: bool = False
    wait_for_database: bool = False
    retention_days: float = 90.0
    services: tuple[Service, ...] = ()
    poll_every: float = 1.0
    poll_every_listening: float = 8.0
    rescue_every: float = 8.0
    pooler: str = "auto"
    figures: Figures | None = None
    quiet_start: float = 0.0

    def __post_init__(self) -> None:
        if self.default_executor not in self.executors:
            raise ConfigurationError(
                f"this worker has no executor {self.default_executor!r}; it has {', '.join(self.executors)}"
            )
        if not 0 < self.renew_every * 3 <= self.lease:
            raise ConfigurationError(
                f"a lease of {self.lease:g} s that is renewed every {self.renew_every:g} s would not survive two "
                "missed renewals; renew it at least three times"
            )

    @property
    def executor(self) -> Executor:
        """The default executor. Its free room limits how many runs the worker claims."""
        return self.executors[self.default_executor]

    def executor_of(self, task: str) -> Executor | None:
        """Return the executor that performs this task; None if this worker does not have the one that it asks for."""
        known = registry.find(task)
        return self.executors.get((known.executor if known is not None else None) or self.default_executor)

    def executable_tasks(self) -> list[str]:
        """Return the names of the registered tasks that this worker can execute: it claims no others."""
        return registry.names(self.executors, self.default_executor)

    def divide(self, claims: list[Claim]) -> Iterable[tuple[Executor, list[Claim]]]:
        """Divide claims among the executors. The default one gets runs whose task is unknown, and fails them."""
        if len(self.executors) == 1:
            return [(self.executor, claims)]
        performs = {task: self.executor_of(task) or self.executor for task in {claim.task for claim in claims}}
        divided: dict[Executor, list[Claim]] = {}
        for claim in claims:
            divided.setdefault(performs[claim.task], []).append(claim)
        return divided.items()

    @property
    def margin(self) -> float:
        """How long before the end of its lease a worker that cannot renew stops its runs."""
        return min(10.0, self.lease / 6)

    @property
    def rescue_pause(self) -> float:
        """How often this worker looks for expired leases and for work of its services."""
        return min(self.rescue_every, self.lease / 7.5)

    @property
    def hostname(self) -> str:
        return socket.gethostname()

    @property
    def title(self) -> str:
        return self.name or f"{self.hostname}:{os.getpid()}"
