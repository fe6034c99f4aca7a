"""The loop of a client program: commands come in as lines of JSON, the seconds that each took go out.

{"do": "one", "first": 0, "count": 100}      submit one by one, each on disk before the next
{"do": "bulk", ...}                          submit by the thousand
{"do": "latency", ...}                       submit one, wait until its body begins, pause a little, and so on
{"do": "feed", "ahead": 2000, "pace": 0}     submit by the thousand, never more than `ahead` before the workers;
                                             `pace` is the first slot that tells how far they are
{"do": "fan", ...}                           map a task over `count` items, and wait until the task that collects
                                             them begins, in the slot `first`
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from bench.board import here

CHUNK = 1000
LATENCY_WAIT = 20.0


def chunks(first: int, count: int) -> Iterator[range]:
    for at in range(first, first + count, CHUNK):
        yield range(at, min(at + CHUNK, first + count))


def serve(
    one: Callable[[int, int], None],
    bulk: Callable[[int, int], None] | None = None,
    configure: Callable[[dict[str, Any]], None] = lambda command: None,
    fan: Callable[[int, int], None] | None = None,
) -> None:
    """Obey commands until the input ends. Both callables take the first number and the count."""
    answer(0.0)
    for line in sys.stdin:
        command = json.loads(line)
        first, count = command["first"], command["count"]
        configure(command)
        started = time.monotonic()
        match command["do"]:
            case "one":
                one(first, count)
            case "bulk" if bulk is not None:
                bulk(first, count)
            case "latency":
                latency(one, first, count, command.get("pause", 0.03))
            case "fan" if fan is not None:
                fan(first, count)
            case "feed" if bulk is not None:
                feed(bulk, first, count, command["ahead"], command["pace"])
        answer(time.monotonic() - started)


def answer(seconds: float) -> None:
    sys.stdout.write(json.dumps({"seconds": seconds}) + "\n")
    sys.stdout.flush()


def latency(one: Callable[[int, int], None], first: int, count: int, pause: float) -> None:
    board = here()
    dice = random.Random(7)
    for number in range(first, first + count):
        board.asked[number] = time.monotonic_ns()
        one(number, 1)
        board.wait(number, LATENCY_WAIT)
        time.sleep(0.01 + dice.random() * pause)


def feed(bulk: Callable[[int, int], None], first: int, count: int, ahead: int, pace: int) -> None:
    began = here().began
    for chunk in chunks(first, count):
        behind = pace + chunk.start - first - ahead
        while behind >= pace and not began[behind]:
            time.sleep(0.001)
        bulk(chunk.start, len(chunk))
