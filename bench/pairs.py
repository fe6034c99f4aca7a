"""Two variants in one run: alternating rounds on one server, and one line of ratios for each measure.

`bench.user_locks`, `bench.mixed_fleet` and `bench.against` share this: a server and a board of their own under a
temporary directory, and the printing.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench import servers
from bench.board import Board, new_board
from bench.contender import Lab
from bench.goals import Goal
from bench.rounds import Outcome
from bench.table import table


@contextlib.contextmanager
def temporary_lab(kind: str = "stock") -> Iterator[Lab]:
    """A Postgres and a board that are removed afterwards; `kind` as in `bench.servers`."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory:
        scratch = Path(directory)
        scratch.chmod(0o711)
        with new_board() as board, servers.postgres(scratch / "postgres", kind) as postgres:
            yield Lab(Board(board), board, postgres, None, scratch)


def show(goals: Sequence[Goal], outcomes: Mapping[str, Outcome]) -> int:
    """Print the table and every error; returns the exit code: 0 if all goals were met."""
    found = [goal.line(outcomes) for goal in goals]
    print(table(found))
    for name, outcome in outcomes.items():
        for error in outcome.errors:
            print(f"{name}: {error}")
    return 0 if all(line.met for line in found) else 1
