"""Every schedule in turn: each is played from the start, and the last choice with an alternative is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import factorial, prod
from random import Random
from typing import TypeVar

from tests.explorer.schedule import ACTORS, TIME_PASSES

T = TypeVar("T")

Choose = Callable[[Sequence[str]], str]

# How fast an actor is compared with the others.
PACES = (1, 1, 6)


class Diverged(RuntimeError):
    """A schedule could not be replayed: it is not deterministic."""


def every(play: Callable[[Choose], T]) -> Iterator[T]:
    """Play every schedule."""
    prefix: list[str] = []
    while True:
        taken: list[str] = []
        offered: list[Sequence[str]] = []
        yield play(_following(prefix, taken, offered, lambda options: options[0]))
        for depth in reversed(range(len(taken))):
            rest = offered[depth][offered[depth].index(taken[depth]) + 1 :]
            if rest:
                prefix = [*taken[:depth], rest[0]]
                break
        else:
            return


def replayed(play: Callable[[Choose], T], steps: Sequence[str]) -> T:
    """Play this schedule; remaining steps are played in order."""
    return play(_following(list(steps), [], [], lambda options: options[0]))


def sampled(play: Callable[[Choose], T], seed: str, amount: int, crash_within: int) -> Iterator[T]:
    """Play schedules drawn at random, the same ones for the same seed, each with one crash where it can have one.

    In each of them some actors are faster than others: otherwise a long program would hardly ever make much progress
    between two steps of a short one.
    """
    for number in range(amount):
        dice = Random(f"{seed} {number}")
        crash_at = dice.randrange(max(1, crash_within))
        taken: list[str] = []
        draw = _draw(dice, crash_at, taken, {name: dice.choice(PACES) for name in (*ACTORS, TIME_PASSES)})
        yield play(_following([], taken, [], draw))


def _draw(dice: Random, crash_at: int, taken: list[str], paces: Mapping[str, int]) -> Choose:
    def draw(options: Sequence[str]) -> str:
        crashes = [option for option in options if len(option) > 1]
        if len(taken) >= crash_at and crashes:
            return dice.choice(crashes)
        steps = [option for option in options if len(option) == 1]
        return dice.choices(steps, [paces[step] for step in steps])[0]

    return draw


def _following(prefix: list[str], taken: list[str], offered: list[Sequence[str]], otherwise: Choose) -> Choose:
    def choose(options: Sequence[str]) -> str:
        at = len(taken)
        choice = prefix[at] if at < len(prefix) else otherwise(options)
        if choice not in options:
            raise Diverged(f"{choice!r} at step {at} after {''.join(taken)!r}, but only {options} could go on")
        taken.append(choice)
        offered.append(options)
        return choice

    return choose


def interleavings(*steps: int) -> int:
    """Return the number of interleavings of actors with these numbers of steps, if none ever waits."""
    return factorial(sum(steps)) // prod(factorial(count) for count in steps)
