"""What `bench.ray` executes, with Holdfast and without."""

from __future__ import annotations

from time import perf_counter

from holdfast import task


def add_one(number: int, milliseconds: float = 0.0) -> int:
    """Compute for so long; with 0, only add."""
    if milliseconds:
        ends = perf_counter() + milliseconds / 1000
        while perf_counter() < ends:
            pass
    return number + 1


@task("bench.add_one")
def add_one_task(number: int, milliseconds: float = 0.0) -> int:
    return add_one(number, milliseconds)
