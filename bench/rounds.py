"""Alternating rounds: contenders take turns, so that a slow spell of the machine meets all of them."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bench.contender import Contender, Lab
from bench.outfit import say

Sample = dict[str, float]


class Sizes(NamedTuple):
    """How much of everything. Drains take seconds each: long enough to mean something, short enough to alternate."""

    rounds: int = 5
    inline: int = 40_000
    process: int = 20_000
    huey: int = 6_000
    celery: int = 2_000
    one_by_one: int = 3_000
    bulk: int = 40_000
    latency: int = 150
    floor_seconds: int = 4
    cost: int = 4_000
    snapshot: int = 200_000
    idle_seconds: float = 45.0
    idle_warmup: float = 15.0
    memory: int = 1_000_000
    history: int = 10_000_000
    pending: int = 1_000_000
    loaded: int = 40_000
    curve: int = 30_000
    fan: int = 10_000

    @classmethod
    def quick(cls) -> Sizes:
        """One round, to see where things stand."""
        return cls(
            rounds=1,
            inline=20_000,
            process=8_000,
            huey=3_000,
            celery=800,
            one_by_one=500,
            bulk=10_000,
            latency=40,
            floor_seconds=2,
            cost=1_000,
            snapshot=50_000,
            idle_seconds=15.0,
            memory=30_000,
            history=200_000,
            pending=50_000,
            loaded=10_000,
            curve=10_000,
            fan=3_000,
        )

    @classmethod
    def tiny(cls) -> Sizes:
        """As little as shows that it works."""
        least = cls(*[1_000] * len(cls._fields))
        return least._replace(
            rounds=1,
            inline=300,
            process=200,
            one_by_one=50,
            latency=5,
            floor_seconds=1,
            cost=100,
            idle_seconds=0.1,
            idle_warmup=0.1,
        )


class Entry(NamedTuple):
    """One participant of an experiment: its name in the figures, who it is, and what is done with it."""

    name: str
    contender: Contender
    measure: Callable[[Any], Sample]


@dataclass
class Outcome:
    """What an experiment found: samples by participant, in rounds; and who could not take part, and why."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    load: list[float] = field(default_factory=list)


def alternate(name: str, entries: Sequence[Entry], rounds: int) -> Outcome:
    outcome = Outcome()
    present = []
    for entry in entries:
        if entry.contender.missing:
            outcome.absent[entry.name] = entry.contender.missing
        else:
            present.append(entry)
    for turn in range(rounds):
        outcome.load.append(os.getloadavg()[0])
        order = present[turn % max(1, len(present)) :] + present[: turn % max(1, len(present))]
        for entry in order:
            started = time.monotonic()
            sample = _attempt(entry, outcome)
            shown = "  ".join(f"{key} {value:,.4g}" for key, value in sample.items())
            say(f"  {name} {turn + 1}/{rounds}  {entry.name:18s} {shown}  [{time.monotonic() - started:.0f} s]")
            outcome.samples.setdefault(entry.name, []).append(sample)
    for entry in present:
        entry.contender.close()
    return outcome


def _attempt(entry: Entry, outcome: Outcome) -> Sample:
    """One sample; an empty one, with the reason kept, if it could not be had."""
    try:
        return entry.measure(entry.contender)
    except Exception as error:  # noqa: BLE001 - one contender's trouble is a gap in the table, not its end
        outcome.errors.append(f"{entry.name}: {type(error).__name__}: {error}")
        say(traceback.format_exc())
        return {}


class Experiment(NamedTuple):
    """Something to measure. `full` ones take long and are only done when asked for."""

    name: str
    about: str
    entries: Callable[[Lab, Sizes], Sequence[Entry]]
    rounds: int | None = None
    full: bool = False

    def run(self, lab: Lab, sizes: Sizes) -> Outcome:
        say(f"{self.name}: {self.about}")
        return alternate(self.name, self.entries(lab, sizes), self.rounds or sizes.rounds)
