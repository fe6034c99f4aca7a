"""Exploring a meeting: which schedules are played, and how many there should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from tests.explorer import search
from tests.explorer.schedule import Meeting, parse
from tests.explorer.stage import Crashes, Played, Stage, Violation


@dataclass(slots=True)
class Tally:
    """The result of exploring a meeting. `expected` is the closed formula's count, where no actor ever waited."""

    schedules: int = 0
    crashes: int = 0
    waits: int = 0
    transients: int = 0
    expected: int | None = None
    violations: list[Violation] = field(default_factory=list)

    def add(self, played: Played) -> None:
        self.schedules += 1
        self.crashes += any(len(step) > 1 for step in played.schedule.steps)
        self.waits += played.waits > 0
        self.transients += sum(actor.transients for actor in played.actors)


def every_interleaving(stage: Stage, meeting: Meeting) -> Tally:
    """All schedules without a crash, and whether there are as many as there should be."""
    tally = Tally()
    _interleave(search.every(partial(stage.play, meeting, Crashes.NONE)), tally)
    return _judged(stage, tally)


def sample_interleavings_and_crashes(stage: Stage, meeting: Meeting, amount: int, crashing: int) -> list[Tally]:
    """A sample of schedules without a crash, and one with a crash.

    They are checked together, because letting everything end takes as long as playing several schedules.
    """
    return [sample_interleavings(stage, meeting, amount, judged=False), sample_crashes(stage, meeting, crashing)]


def sample_interleavings(stage: Stage, meeting: Meeting, amount: int, *, judged: bool = True) -> Tally:
    """All schedules without a crash if there are at most `amount`, or else a deterministic sample of that size.

    The first schedule suggests how many there are. If one actor left nothing to do for the other, there may be far
    more: then the first of them are played as well. Unless `judged`, what is played next is checked together with them.
    """
    play, tally = partial(stage.play, meeting, Crashes.NONE), Tally()
    schedules = search.every(play)
    first = next(schedules)
    few = search.interleavings(*first.steps) <= amount
    if not _interleave(chain([first], schedules if few else ()), tally, amount if few else 0):
        for played in search.sampled(play, str(meeting), amount - 1, 1):
            tally.add(played)
    return _judged(stage, tally) if judged else tally


def _interleave(schedules: Iterator[Played], tally: Tally, most: int | None = None) -> bool:
    """Play schedules without a crash until there are more than `most`. Return whether these were all."""
    steps = Counter[tuple[int, ...]]()
    for played in schedules:
        tally.add(played)
        steps[played.steps] += 1
        if most is not None and tally.schedules > most:
            return False
    # What an actor encounters may change its number of steps; otherwise the count is known in advance.
    if not tally.waits and len(steps) == 1:
        tally.expected = search.interleavings(*next(iter(steps)))
    return True


def every_crash(stage: Stage, meeting: Meeting, crashes: Crashes = Crashes.BRIEF) -> Tally:
    """All schedules with at most one crash."""
    tally = Tally()
    for played in search.every(partial(stage.play, meeting, crashes)):
        tally.add(played)
    return _judged(stage, tally)


def sample_crashes(stage: Stage, meeting: Meeting, amount: int) -> Tally:
    """A deterministic sample of the schedules with a crash."""
    tally = Tally()
    for played in search.sampled(partial(stage.play, meeting, Crashes.ALL), str(meeting), amount, 10):
        tally.add(played)
    return _judged(stage, tally)


def replay(stage: Stage, schedule: str) -> Tally:
    """Play one schedule again, from its line of text."""
    wanted, tally = parse(schedule), Tally()
    tally.add(search.replayed(partial(stage.play, wanted.meeting, Crashes.ALL), wanted.steps))
    return _judged(stage, tally)


def _judged(stage: Stage, tally: Tally) -> Tally:
    stage.judge()
    tally.violations, stage.violations = stage.violations, []
    return tally
