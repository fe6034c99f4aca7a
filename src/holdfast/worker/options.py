"""What a worker is told when it starts."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.domain.doorbell import Listener
from holdfast.domain.errors import ConfigurationError
from holdfast.domain.execution import Executor, Limits, StoreResult
from holdfast.domain.values import NewRun
from holdfast.worker.figures import Figures

if TYPE_CHECKING:
    from holdfast.worker.upkeep import Service

Prepare = Callable[[str, Any, Mapping[str, Any]], NewRun]


def _no_store(run_id: str, attempt: int, text: bytes) -> Any:
    raise ConfigurationError("this worker has no place for large results; set HOLDFAST_ARTIFACTS")


def _no_children(task: str, parameters: Any, options: Mapping[str, Any]) -> NewRun:
    raise ConfigurationError("this worker was started without a way to submit child runs")


@dataclass(frozen=True)
class WorkerOptions:
    """Settings and parts of a worker. Seconds throughout.

    `executor` performs the runs, except those of tasks that say `inline`, which `inline` performs. `prepare` makes a
    child run out of a task's name, parameters and options; `store` keeps large results. `services` are done beside
    those that every worker does; `figures` counts what it starts and ends.
    """

    database_url: str
    executor: Executor
    inline: Executor
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

    def __post_init__(self) -> None:
        if not 0 < self.renew_every * 3 <= self.lease:
            raise ConfigurationError(
                f"renewing every {self.renew_every:g} s cannot keep a lease of {self.lease:g} s through two missed "
                "renewals; renew at least three times per lease"
            )

    @property
    def margin(self) -> float:
        """How long before its lease can expire a worker that cannot renew stops its runs."""
        return min(10.0, self.lease / 6)

    @property
    def rescue_pause(self) -> float:
        """How long leases that have passed may lie before this worker looks for them."""
        return min(self.rescue_every, self.lease / 7.5)

    @property
    def hostname(self) -> str:
        return socket.gethostname()

    @property
    def title(self) -> str:
        return self.name or f"{self.hostname}:{os.getpid()}"
