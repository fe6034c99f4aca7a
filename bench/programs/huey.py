"""Huey on Redis with stored results: the module that its consumer imports, and the client."""

from __future__ import annotations

import os

from huey import RedisHuey

from bench.board import body
from bench.programs.asking import serve

huey = RedisHuey("bench", url=os.environ["BENCH_REDIS"], results=True, blocking=True)


@huey.task(name="noop")
def noop(number: int) -> dict[str, int]:
    return body(number)


def one(first: int, count: int) -> None:
    for number in range(first, first + count):
        noop(number)


def main() -> None:
    serve(one, one)
