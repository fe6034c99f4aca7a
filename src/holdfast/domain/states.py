"""The statuses of runs and attempts, and the transitions of runs, as data.

`MOVES` lists every transition of a run; a test checks that the database permits these and no others.
"""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """The status of a run."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def final(self) -> bool:
        return self in FINAL


class AttemptStatus(StrEnum):
    """The status of one attempt."""

    SUBMITTED = "SUBMITTED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    LOST = "LOST"


FINAL = frozenset({Status.SUCCEEDED, Status.FAILED, Status.CANCELLED})
REOPENABLE = frozenset({Status.FAILED, Status.CANCELLED})

MOVES: dict[tuple[Status, Status], str] = {
    (Status.PENDING, Status.RUNNING): "claim",
    (Status.PENDING, Status.CANCELLED): "cancel",
    (Status.RUNNING, Status.SUCCEEDED): "finish",
    (Status.RUNNING, Status.FAILED): "finish",
    (Status.RUNNING, Status.CANCELLED): "finish",
    (Status.RUNNING, Status.PENDING): "retry",
    (Status.FAILED, Status.PENDING): "reopen",
    (Status.CANCELLED, Status.PENDING): "reopen",
}
