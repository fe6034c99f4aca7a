"""This checkout and another commit of it, in alternating rounds on one server.

    python -m bench.against HEAD~20 [--quick] [--rounds 5] [--only drain submit latency]

The other commit is checked out into a temporary git worktree. Both sides are measured by the programs of this
checkout, under this interpreter, each in a database of its own with its own schema. Prints ratios: above 1 this
checkout is faster, except for latencies, where it is below.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
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
MIGRATE = "import sys; from holdfast import migrate; migrate.upgrade(sys.argv[1])"


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
        return f"bench_{self.side}"

    def environment(self) -> dict[str, str]:
        # The source comes first: the interpreter's own installation is this checkout's.
        found = super().environment()
        return found | {"PYTHONPATH": os.pathsep.join([str(self._source / "src"), found["PYTHONPATH"]])}

    def make_schema(self, url: str) -> None:
        subprocess.run([sys.executable, "-c", MIGRATE, url], env=self.environment(), check=True)

    def worker_commands(self, workers: int) -> list[list[str]]:
        command = [sys.executable, "-m", "holdfast", "worker", "--tasks", "bench.programs.holdfast_tasks"]
        command += ["--executor", self._executor, *(["--slots", str(self._slots)] if self._slots else [])]
        return [command] * workers


GOALS = (
    Goal("drain, 1 worker, inline", "drain", ("here", "rate"), ("there", "rate"), least=LEAST),
    Goal("drain, child processes", "drain-process", ("here", "rate"), ("there", "rate"), least=LEAST),
    Goal("submit one by one", "submit-one", ("here", "rate"), ("there", "rate"), least=LEAST),
    Goal("submit in bulk", "submit-bulk", ("here", "rate"), ("there", "rate"), least=LEAST),
    Goal("submit → body, p50", "latency", ("here", "p50"), ("there", "p50"), most=1 / LEAST, unit=" ms"),
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


@contextlib.contextmanager
def worktree(revision: str, directory: Path) -> Iterator[Path]:
    """The files of a commit, in a worktree that is removed afterwards."""
    git = ["git", "-C", str(outfit.ROOT)]
    commit = subprocess.run(
        [*git, "rev-parse", "--verify", f"{revision}^{{commit}}"], capture_output=True, text=True, check=True
    )
    place = directory / "there"
    subprocess.run([*git, "worktree", "add", "--quiet", "--detach", str(place), commit.stdout.strip()], check=True)
    try:
        yield place
    finally:
        subprocess.run([*git, "worktree", "remove", "--force", str(place)], check=True)


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
    with temporary_lab(options.server) as lab, worktree(options.revision, lab.scratch) as other:
        for name, entries in experiments(lab, other, sizes).items():
            if not options.only or any(part in name for part in options.only):
                outcomes[name] = alternate(name, entries, options.rounds or sizes.rounds)
    return show([goal for goal in GOALS if goal.experiment in outcomes], outcomes)


if __name__ == "__main__":
    sys.exit(main())
