"""Exceptions in `TaskResult.errors` for attempts in which the task itself raised nothing."""

from __future__ import annotations

from holdfast.domain.errors import HoldfastError


class ChildCrashed(HoldfastError):
    """The process that ran the task died: it was killed, ran out of memory, or crashed."""


class LeaseExpired(HoldfastError):
    """The worker that ran the task was lost: it was killed, or could not reach the database in time."""
