"""Faults under load, and a judgement at the end.

    python -m tests.chaos [--seconds 600] [--seed N] [--postgres 15] [--no-pooler] [--only FAULT ...]

Exits with 1 if anything was lost, doubled, stuck, misjudged or otherwise wrong. The seed is printed first; the same
seed draws the same faults and the same requests at the same moments, as far as the machine keeps up.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

from tests.chaos.faults import NAMES
from tests.chaos.harness import Options, run, say
from tests.chaos.report import page


def arguments(given: list[str]) -> Options:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--seconds", type=float, default=600.0, help="how long faults happen (600)")
    add("--seed", type=int, default=None, help="of the faults and the requests; else a new one")
    add("--workers", type=int, default=8)
    add("--users", type=int, default=3, help="threads that submit")
    add("--rate", type=float, default=8.0, help="requests per second, of all users together")
    add("--pace", type=float, default=1.2, help="mean seconds between two faults")
    add("--lease", type=float, default=3.0)
    add("--postgres", metavar="VERSION", help="Debian's of that version instead of the embedded one: 15")
    add("--no-pooler", action="store_true", help="no PgBouncer in front of half of the workers")
    add("--only", nargs="+", choices=sorted(NAMES), default=[], metavar="FAULT")
    add("--without", nargs="+", choices=sorted(NAMES), default=[], metavar="FAULT")
    add("--keep", type=Path, metavar="DIRECTORY", help="a new directory for logs and data, kept afterwards")
    told = parser.parse_args(given)
    return Options(
        seconds=told.seconds,
        seed=random.randrange(1_000_000) if told.seed is None else told.seed,
        workers=told.workers,
        users=told.users,
        rate=told.rate,
        pace=told.pace,
        lease=told.lease,
        postgres=told.postgres,
        pooler=not told.no_pooler,
        only=tuple(told.only),
        without=tuple(told.without),
        keep=told.keep,
    )


def main() -> int:
    options = arguments(sys.argv[1:])
    say(f"chaos: seed {options.seed}")
    report = run(options)
    print(page(report))
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
