"""A schedule as a line of text: `succeed+cancel@leased:ab?b/t`. What fails can be replayed from it."""

from __future__ import annotations

import re
from dataclasses import dataclass

TIME_PASSES = "t"
_STEP = re.compile(r"[ab][!?/]?|t")


@dataclass(frozen=True, slots=True)
class Meeting:
    """Two programs that meet in a situation."""

    first: str
    second: str
    situation: str

    def __str__(self) -> str:
        return f"{self.first}+{self.second}@{self.situation}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """Who takes a step, in order; a crash is a sign after the name."""

    meeting: Meeting
    steps: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.meeting}:{''.join(self.steps)}"


def parse(text: str) -> Schedule:
    """Read what `str(schedule)` wrote."""
    head, _, tail = text.partition(":")
    names, _, situation = head.partition("@")
    first, _, second = names.partition("+")
    steps = tuple(_STEP.findall(tail))
    if not (first and second and situation) or "".join(steps) != tail:
        raise ValueError(f"{text!r} is not a schedule such as succeed+cancel@leased:ab?b/t")
    return Schedule(Meeting(first, second, situation), steps)
