"""The sets of parameters to sweep over, as a Parquet file."""

from __future__ import annotations

import random
from pathlib import Path

from holdfast.jobs.datasets import ParquetFiles
from holdfast.tasks.forecast import REGIONS, SCENARIOS


def write_sets(path: Path, sets: int, seed: int = 7) -> ParquetFiles:
    """Write so many sets: the scenarios in turn, each for a region, a horizon and a seed that are drawn."""
    chance = random.Random(seed)
    rows = [
        {
            "set": number,
            "scenario": list(SCENARIOS)[number % len(SCENARIOS)],
            "region": chance.choice(list(REGIONS)),
            "horizon_months": chance.choice((6, 12, 24, 36, 60)),
            "seed": chance.randrange(2**32),
        }
        for number in range(sets)
    ]
    return ParquetFiles.write(path, rows, group=100)
