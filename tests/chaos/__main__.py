"""Faults under load, with a check of the results at the end.

    python -m tests.chaos [--seconds 600] [--seed N] [--postgres 15] [--no-pooler] [--only FAULT ...]

Exits with 1 if anything was lost, duplicated, stuck, misjudged or otherwise wrong. The seed is printed first; the same
seed gives the same faults and requests at the same times, as far as the machine keeps up.
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
    chosen = parser.parse_args(given)
    return Options(
        seconds=chosen.seconds,
        seed=random.randrange(1_000_000) if chosen.seed is None else chosen.seed,
        workers=chosen.workers,
        users=chosen.users,
        rate=chosen.rate,
        pace=chosen.pace,
        lease=chosen.lease,
        postgres=chosen.postgres,
        pooler=not chosen.no_pooler,
        only=tuple(chosen.only),
        without=tuple(chosen.without),
        keep=chosen.keep,
    )


def main() -> int:
    options = arguments(sys.argv[1:])
    say(f"chaos: seed {options.seed}")
    report = run(options)
    print(page(report))
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
