"""The command line of the benchmarks. It fails if a goal that docs/performance.md shows as met is not met."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from bench import figures, outfit, report, servers
from bench.board import Board, new_board
from bench.contender import Lab
from bench.experiments import EXPERIMENTS
from bench.goals import lines
from bench.rounds import Experiment, Outcome, Sizes
from bench.table import figure, lost, met_before, table

NEWEST = outfit.SCRATCH / "figures.json"
PAGE = outfit.ROOT / "docs" / "performance.md"


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Compare Holdfast with its peers, in one run.")
    add = parser.add_argument
    add("action", nargs="?", choices=("run", "report"), default="run")
    add("--quick", action="store_true", help="one round, small sizes: to see that it works")
    add("--full", action="store_true", help="also the line with ten million finished runs")
    add("--only", nargs="+", metavar="NAME", help="only experiments whose names contain one of these")
    add("--rounds", type=int, help="rounds of each alternation (5)")
    add(
        "--server",
        choices=("stock", "embedded", "15"),
        default="stock",
        help="as shipped, as we tune it, or Debian's 15",
    )
    add("--no-peers", action="store_true", help="ours only; install nothing")
    add("--json", type=Path, action="append", metavar="FILE", help="where the figures go; a report takes several")
    add("--list", action="store_true", help="name the experiments and end")
    return parser.parse_args(given)


def chosen(options: argparse.Namespace) -> list[Experiment]:
    named = options.only
    return [
        one
        for one in EXPERIMENTS
        if (any(part in one.name for part in named) if named else options.full or not one.full)
    ]


def measure(options: argparse.Namespace) -> int:
    sizes = Sizes.quick() if options.quick else Sizes()
    if options.rounds:
        sizes = sizes._replace(rounds=options.rounds)
    outfit.SCRATCH.mkdir(exist_ok=True)
    (outfit.SCRATCH / ".gitignore").write_text("*\n")
    if not options.no_peers:
        outfit.install()
    home = outfit.SCRATCH / f"postgres-{options.server}"
    with (
        new_board() as board_path,
        servers.postgres(home, options.server) as postgres,
        servers.redis(outfit.SCRATCH / "redis") as redis,
    ):
        lab = Lab(Board(board_path), board_path, postgres, redis, outfit.SCRATCH)
        settings = servers.settings_of(postgres) | {"server": options.server, "transport": "unix socket"}
        made = run(lab, chosen(options), sizes, settings, options.json[-1] if options.json else NEWEST)
    found = lines(made)
    print(table(found))
    missed = [] if options.quick else lost(found, met_before(PAGE.read_text()))
    for line in missed:
        print(f"no longer met: {line.measure} {line.against}: {figure(line)}, goal {line.goal}")
    return 1 if missed else 0


def run(
    lab: Lab, experiments: list[Experiment], sizes: Sizes, settings: dict[str, str], target: Path
) -> dict[str, Outcome]:
    """Do the experiments; the figures are written after each, so that an interrupted run keeps what it has."""
    outcomes: dict[str, Outcome] = {}
    for experiment in experiments:
        outcomes[experiment.name] = experiment.run(lab, sizes)
        entries = {one.name: one.entries(lab, sizes) for one in experiments if one.name in outcomes}
        done = [one for one in experiments if one.name in outcomes]
        figures.write(target, figures.document(outcomes, sizes, settings, figures.participants(done, entries)))
    return outcomes


def main() -> int:
    options = arguments(sys.argv[1:])
    if options.list:
        for one in EXPERIMENTS:
            print(f"{one.name:16s} {one.about}{' (with --full)' if one.full else ''}")
        return 0
    if options.action == "report":
        made, *others = figures.by_server(json.loads(path.read_text()) for path in options.json or [NEWEST])
        PAGE.write_text(report.page(made, others))
        print(f"wrote {os.path.relpath(PAGE)}")
        return 0
    return measure(options)


if __name__ == "__main__":
    sys.exit(main())
