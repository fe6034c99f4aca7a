"""A schedule as a line of text: `succeed+cancel@leased:ab?b/t`. A failed schedule can be replayed from it.

A program whose name ends in `~` does not wait for locks: its statements fail with lock_not_available instead, and the
operation is tried again once a transaction of another actor has ended.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TIME_PASSES = "t"
ACTORS = "abc"
IMPATIENT = "~"
_STEP = re.compile(rf"[{ACTORS}][!?/]?|t")


@dataclass(frozen=True, slots=True)
class Meeting:
    """Two or three programs that run concurrently in a situation."""

    first: str
    second: str
    situation: str
    third: str | None = None

    @property
    def programs(self) -> tuple[str, ...]:
        return (self.first, self.second) if self.third is None else (self.first, self.second, self.third)

    def __str__(self) -> str:
        return f"{'+'.join(self.programs)}@{self.situation}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """The actors in the order of their steps; a crash is a sign after the name."""

    meeting: Meeting
    steps: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.meeting}:{''.join(self.steps)}"


def parse(text: str) -> Schedule:
    """Read what `str(schedule)` wrote."""
    head, _, tail = text.partition(":")
    names, _, situation = head.partition("@")
    programs = names.split("+")
    steps = tuple(_STEP.findall(tail))
    if len(programs) not in (2, 3) or not all([*programs, situation]) or "".join(steps) != tail:
        raise ValueError(f"{text!r} is not a schedule such as succeed+cancel@leased:ab?b/t")
    first, second, *third = programs
    return Schedule(Meeting(first, second, situation, *third), steps)
