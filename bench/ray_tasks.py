"""What `bench.ray` executes, with Holdfast and without."""

from __future__ import annotations

from holdfast import task


def add_one(number: int) -> int:
    return number + 1


@task("bench.add_one")
def add_one_task(number: int) -> int:
    return add_one(number)
