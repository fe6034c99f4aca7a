"""What needs no server: the payload's hash, and how fast the command line answers."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time
import timeit
from typing import Any

import orjson

from bench.contender import Contender, Lab
from bench.contenders import Holdfast
from bench.rounds import Entry, Experiment, Sample, Sizes
from holdfast import canonicalize

LOOPS = 20
SERIES = 500


def kilobyte() -> dict[str, Any]:
    """An object of about 1 KB as models get them: names, numbers, a nested object, a list."""
    dice = random.Random(7)
    made: dict[str, Any] = {
        "scenario": "high_inflation",
        "region": "AU",
        "horizon_months": 24,
        "seed": 123456789,
        "weights": [round(dice.uniform(0, 1), 6) for _ in range(40)],
        "options": {"method": "monte-carlo", "paths": 10000, "antithetic": True, "tolerance": 0.001, "limit": None},
        "labels": {f"label_{at}": f"value number {at}" for at in range(12)},
    }
    made["notes"] = "x" * max(0, 1024 - len(orjson.dumps(made)) - 11)
    return made


def hashing(contender: Contender) -> Sample:
    value = kilobyte()
    # Many short series: on a busy machine only the quickest of them were left alone.
    ours = min(timeit.repeat(lambda: canonicalize(value), number=LOOPS, repeat=SERIES)) / LOOPS
    plain = min(timeit.repeat(lambda: orjson.dumps(value), number=LOOPS, repeat=SERIES)) / LOOPS
    return {"microseconds": ours * 1e6, "plain": plain * 1e6, "ratio": ours / plain}


def help_text(contender: Contender) -> Sample:
    took = []
    for _ in range(7):
        started = time.monotonic()
        subprocess.run([sys.executable, "-m", "holdfast", "--help"], check=True, capture_output=True)
        took.append((time.monotonic() - started) * 1000)
    return {"milliseconds": statistics.median(took)}


def hashes(lab: Lab, sizes: Sizes) -> list[Entry]:
    return [Entry("holdfast", Holdfast(lab), hashing)]


def helps(lab: Lab, sizes: Sizes) -> list[Entry]:
    return [Entry("holdfast", Holdfast(lab), help_text)]


EXPERIMENTS = (
    Experiment("hash", "canonical hash of 1 KB, compared with orjson's plain dump", hashes),
    Experiment("help", "holdfast --help, milliseconds", helps),
)
