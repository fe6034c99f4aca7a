"""Values of jobs: requests, records, and the ended runs that a job counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from holdfast.domain.states import Status
from holdfast.domain.values import KnownAs


class Ended(NamedTuple):
    """A run or map that has ended, and what counts it. `unreachable` if its dependencies kept it from starting."""

    id: str
    outcome: str
    job_id: str | None = None
    map_id: str | None = None
    unreachable: bool = False


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to be created. The caller generates `id`, so the request can safely be repeated."""

    id: str
    name: str
    description: str | None = None
    timeout: timedelta | None = None
    submitted_by: str | None = None


class Slice(NamedTuple):
    """The canonical parameters of one run of a map, and their hash."""

    parameters: str
    payload_hash: str


@dataclass(frozen=True, slots=True)
class NewMap:
    """A map to be created: the number of its runs and their dataset. A later request must equal `request`."""

    id: str
    job_id: str
    parent_id: str | None
    dataset: str
    total: int
    known_as: KnownAs | None = None
    request: Mapping[str, Any] = field(default_factory=dict)


class Mapped(NamedTuple):
    """The requested map, and whether the request created it."""

    map: MapRecord
    created: bool


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as stored."""

    id: str
    name: str
    status: Status
    description: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    deadline_at: datetime | None
    cancel_requested_at: datetime | None
    reason: str | None
    total: int
    succeeded: int
    failed: int
    cancelled: int
    broken: int
    first_tasks: int
    submitted_by: str | None
    stop_outcome: str | None = None
    """The status with which it ends because it was cancelled or timed out."""


class MapRecord(NamedTuple):
    """A map as stored."""

    id: str
    job_id: str
    parent_id: str | None
    created_at: datetime
    total: int
    open: int
    unsuccessful: int
    task: str
    dataset: Any
