"""This checkout and another commit of it, in alternating rounds on one server.

    python -m bench.against HEAD~20 [--quick] [--rounds 5] [--only drain submit latency]

The sources of the other commit are written to a temporary directory. Both sides are measured by the programs of this
checkout, under this interpreter, each in a database of its own with its own schema. Prints ratios: above 1 this
checkout is faster; for latencies and seconds on a core it is below 1.

A shared machine makes single rounds differ by 15 % with the same code on both sides. Microseconds on a core per run
are steadier than rates.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from bench import outfit
from bench.contender import Lab
from bench.contenders import Holdfast
from bench.drain import filled_drain
from bench.experiments.latency import latency
from bench.experiments.submits import submit
from bench.goals import Goal
from bench.pairs import show, temporary_lab
from bench.rounds import Entry, Outcome, Sizes, alternate

LEAST = 0.97


class Checkout(Holdfast):
    """Holdfast out of one directory."""

    def __init__(self, lab: Lab, side: str, source: Path, executor: str = "inline", slots: int | None = None) -> None:
        super().__init__(lab)
        self.side = side
        self._source = source
        self._executor = executor
        self._slots = slots

    @property
    def database(self) -> str:
        return f"{self.lab.prefix}_{self.side}"

    def environment(self) -> dict[str, str]:
        # The source comes first: the interpreter's own installation is this checkout's.
        found = super().environment()
        return found | {"PYTHONPATH": os.pathsep.join([str(self._source / "src"), found["PYTHONPATH"]])}

    def make_schema(self, url: str) -> None:
        environment = self.environment() | {"HOLDFAST_DATABASE_URL": url}
        upgrade = [sys.executable, "-m", "holdfast", "db", "upgrade"]
        subprocess.run(upgrade, env=environment, check=True, stdout=subprocess.DEVNULL)

    def worker_commands(self, workers: int) -> list[list[str]]:
        command = [sys.executable, "-m", "holdfast", "worker", "--tasks", "bench.programs.holdfast_tasks"]
        command += ["--executor", self._executor, *(["--slots", str(self._slots)] if self._slots else [])]
        return [command] * workers


MOST = round(1 / LEAST, 2)
GOALS = (
    Goal("drain, 1 worker, inline", "drain", ("here", "rate"), ("there", "rate"), least=LEAST),
    Goal("  worker's core per run", "drain", ("here", "worker_us"), ("there", "worker_us"), most=MOST, unit=" µs"),
    Goal("  server's core per run", "drain", ("here", "server_us"), ("there", "server_us"), most=MOST, unit=" µs"),
    Goal("drain, child processes", "drain-process", ("here", "rate"), ("there", "rate"), least=LEAST),
    Goal("submit one by one", "submit-one", ("here", "rate"), ("there", "rate"), least=LEAST),
    Goal("submit in bulk", "submit-bulk", ("here", "rate"), ("there", "rate"), least=LEAST),
    Goal("submit → body, p50", "latency", ("here", "p50"), ("there", "p50"), most=MOST, unit=" ms"),
)


def experiments(lab: Lab, other: Path, sizes: Sizes) -> dict[str, list[Entry]]:
    inline = [Checkout(lab, "here", outfit.ROOT), Checkout(lab, "there", other)]
    children = [Checkout(lab, side, source, "process", 2) for side, source in (("here", outfit.ROOT), ("there", other))]
    measures = {
        "drain": (inline, partial(filled_drain, total=sizes.inline)),
        "drain-process": (children, partial(filled_drain, total=sizes.process)),
        "submit-one": (inline, partial(submit, what="one", count=sizes.one_by_one)),
        "submit-bulk": (inline, partial(submit, what="bulk", count=sizes.bulk)),
        "latency": (inline, partial(latency, count=sizes.latency)),
    }
    return {
        name: [Entry(contender.side, contender, measure) for contender in contenders]
        for name, (contenders, measure) in measures.items()
    }


def sources(revision: str, directory: Path) -> Path:
    """Write the sources of a commit into the directory."""
    place = directory / "there"
    place.mkdir()
    archive = subprocess.run(
        ["git", "-C", str(outfit.ROOT), "archive", revision, "src"], stdout=subprocess.PIPE, check=True
    )
    subprocess.run(["tar", "-x", "-C", str(place)], input=archive.stdout, check=True)
    return place


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", help="the commit to compare with")
    parser.add_argument("--quick", action="store_true", help="one round, small sizes: to see that it works")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only measures whose names contain one of these")
    parser.add_argument("--server", choices=("stock", "embedded"), default="stock")
    options = parser.parse_args()
    sizes = Sizes.quick() if options.quick else Sizes()
    outcomes: dict[str, Outcome] = {}
    with temporary_lab(options.server) as lab:
        other = sources(options.revision, lab.scratch)
        for name, entries in experiments(lab, other, sizes).items():
            if not options.only or any(part in name for part in options.only):
                outcomes[name] = alternate(name, entries, options.rounds or sizes.rounds)
    goals = [goal._replace(against=options.revision) for goal in GOALS if goal.experiment in outcomes]
    return show(goals, outcomes)


if __name__ == "__main__":
    sys.exit(main())
