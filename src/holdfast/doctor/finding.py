"""The result of a check."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


class Finding(NamedTuple):
    """One line of the checklist; `fix` says what to do."""

    name: str
    state: State
    detail: str
    fix: str | None = None


def ok(name: str, detail: str) -> Finding:
    return Finding(name, State.OK, detail)


def warn(name: str, detail: str, fix: str) -> Finding:
    return Finding(name, State.WARN, detail, fix)


def fail(name: str, detail: str, fix: str) -> Finding:
    return Finding(name, State.FAIL, detail, fix)


def skip(name: str, detail: str) -> Finding:
    return Finding(name, State.SKIP, detail)
