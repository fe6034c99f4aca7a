"""Two workers with disjoint tasks on one queue, compared with one worker that knows all tasks.

    python -m bench.mixed_fleet [--quick] [--rounds 5] [--runs 1000] [--executor inline|process]

The workers are up and idle when the runs are submitted, in one statement, alternating between the two tasks. The rate
counts from the submit to the last ending. An attempt that ended without having run its task was handed back: the
goal is that there is none.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial

from bench.contender import Lab
from bench.contenders import Holdfast
from bench.drain import checkpoint, finished
from bench.goals import Goal
from bench.pairs import show, temporary_lab
from bench.programs.mixed_one import mixed_one
from bench.programs.mixed_two import mixed_two
from bench.rounds import Entry, Sample, alternate
from holdfast import Client, Submission
from holdfast.runtime.settings import Settings

MODULES = ("bench.programs.mixed_one", "bench.programs.mixed_two")
START_SECONDS = 60.0
TIMEOUT = 300.0


class KnowsAll(Holdfast):
    """One worker with both tasks."""

    name = "knows-all"

    def __init__(self, lab: Lab, executor: str) -> None:
        super().__init__(lab)
        self._executor = executor

    @property
    def database(self) -> str:
        return f"{self.lab.prefix}_mixed"

    def worker_commands(self, workers: int) -> list[list[str]]:
        return [self.command(*MODULES)]

    def command(self, *modules: str) -> list[str]:
        named = [word for module in modules for word in ("--tasks", module)]
        return [sys.executable, "-m", "holdfast", "worker", "--executor", self._executor, *named]


class Disjoint(KnowsAll):
    """Two workers, each with one of the tasks."""

    name = "disjoint"

    def worker_commands(self, workers: int) -> list[list[str]]:
        return [self.command(module) for module in MODULES]


GOALS = (
    Goal(
        "1,000 runs, disjoint tasks", "mixed", ("disjoint", "rate"), ("knows-all", "rate"), "one knows all", least=0.9
    ),
    Goal("runs handed back", "mixed", ("disjoint", "handed_back"), most=0, unit=""),
    Goal("highest attempt number", "mixed", ("disjoint", "attempts"), most=1, unit=""),
)


def measured(contender: KnowsAll, runs: int) -> Sample:
    contender.fresh()
    contender.lab.board.clear()
    tasks = (mixed_one, mixed_two)
    with contender.workers() as crew, Client(Settings(database_url=contender.url)) as client:
        end = time.monotonic() + START_SECONDS
        expected = len(contender.worker_commands(1))
        while contender.sql("select count(*) from holdfast.workers")[0][0] < expected:
            crew.check()
            if time.monotonic() > end:
                raise TimeoutError(f"the workers of {contender.name} did not start")
            time.sleep(0.05)
        checkpoint(contender)
        began = time.monotonic_ns()
        client.submit_many([Submission(tasks[number % 2], {"n": number}) for number in range(runs)])
        ended = finished(contender, crew, runs, TIMEOUT)
    succeeded, handed_back, highest = contender.sql(
        "select count(*) filter (where outcome = 'SUCCEEDED'), count(*) filter (where status = 'CANCELLED'),"
        " coalesce(max(number), 0) from holdfast.attempts"
    )[0]
    if succeeded != runs:
        raise RuntimeError(f"{succeeded} of {runs} runs succeeded")
    return {
        "rate": runs / ((ended - began) / 1e9),
        "handed_back": float(handed_back),
        "attempts": float(highest),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round with 200 runs: to see that it works")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--runs", type=int)
    parser.add_argument("--executor", choices=("inline", "process"), default="inline")
    options = parser.parse_args()
    runs = options.runs or (200 if options.quick else 1000)
    with temporary_lab() as lab:
        measure = partial(measured, runs=runs)
        entries = [Entry(kind.name, kind(lab, options.executor), measure) for kind in (KnowsAll, Disjoint)]
        outcome = alternate("mixed", entries, options.rounds or (1 if options.quick else 5))
    return show(GOALS, {"mixed": outcome})


if __name__ == "__main__":
    sys.exit(main())
