"""The benchmarks' table and page can be rendered, with tiny sizes and without peers."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from bench import against, figures, mixed_fleet, outfit, report, user_locks
from bench.board import Board, new_board
from bench.contender import Lab
from bench.contenders import Holdfast
from bench.experiments import EXPERIMENTS
from bench.goals import LINES, Figure, Line, lines
from bench.plots import bars
from bench.rounds import Outcome, Sizes, alternate
from bench.table import lost, markdown, met_before, table

MEASURED = ("drain-1", "submit-bulk", "history", "wal", "hash")


@pytest.fixture
def lab(server_url: str, tmp_path: Path) -> Iterator[Lab]:
    with psycopg.connect(server_url) as connection:
        found = connection.execute("select rolsuper from pg_roles where rolname = current_user").fetchone()
    if not found or not found[0]:
        pytest.skip("the benchmarks need a superuser: they make history with guards off")
    with new_board() as path:
        # Other processes run these tests on the same server.
        lab = Lab(Board(path), path, server_url, None, tmp_path, f"bench_{secrets.token_hex(4)}")
        yield lab
        with lab.admin() as admin:
            mine = "select datname from pg_database where starts_with(datname, %s)"
            made = admin.execute(mine, [lab.prefix]).fetchall()
            for (name,) in made:
                admin.execute(f"drop database if exists {name} with (force)")


@pytest.mark.timeout(300)
def test_benchmark_table_and_page_are_rendered(lab: Lab) -> None:
    sizes = Sizes.tiny()
    outcomes: dict[str, Outcome] = {}
    for experiment in EXPERIMENTS:
        if experiment.name in MEASURED:
            ours = [entry for entry in experiment.entries(lab, sizes) if isinstance(entry.contender, Holdfast)]
            outcomes[experiment.name] = alternate(experiment.name, ours, rounds=1)
            assert not outcomes[experiment.name].errors
    made = figures.document(outcomes, sizes, {"server": "test"}, {})
    figures.write(lab.scratch / "figures.json", made)
    assert all(line.measure in table(lines(outcomes)) for line in lines(outcomes))
    assert report.page(made).startswith("# Performance")


def test_page_compares_other_servers_without_goals() -> None:
    samples = {"holdfast": [{"rate": 2.0}], "pgqueuer": [{"rate": 1.0}]}
    first, other = (
        figures.document({"drain-1": Outcome(samples=samples)}, Sizes.tiny(), settings, {})
        for settings in ({"server": "stock"}, {"server": "15", "server_version": "15.1"})
    )
    made = figures.by_server([first, other, first])
    page = report.page(made[0], made[1:])
    assert len(made) == 2
    assert page.count("## PostgreSQL 15.1") == 1
    assert met_before(page) == met_before(report.page(first))


def test_missing_peer_is_named() -> None:
    absent = Outcome(samples={"holdfast": [{"rate": 2.0}]}, absent={"pgqueuer": "it could not be installed here"})
    line = lines({"drain-1": absent})[0]
    assert line.met is None
    assert "it could not be installed here" in table([line])


def test_goal_is_compared_with_the_median_of_the_rounds() -> None:
    def judged(*ours: float) -> Line:
        samples = {"holdfast": [{"rate": rate} for rate in ours], "pgqueuer": [{"rate": 1.0}] * len(ours)}
        return lines({"drain-1": Outcome(samples=samples)})[0]

    assert judged(0.1, 1.9, 2.0).met
    assert judged(9.0, 1.1, 1.0).met is False
    assert len(lines({})) == len(LINES)


def test_goal_that_is_no_longer_met_is_found() -> None:
    page = markdown(
        [line("drain", "PGQueuer", met=True), line("drain", "the fastest peer (a)", met=True), line("bulk")]
    )
    now = [line("drain", "PGQueuer", met=True), line("drain", "the fastest peer (b)"), line("bulk"), line("new")]
    assert lost(now, met_before(page)) == [line("drain", "the fastest peer (b)")]


def line(measure: str, against: str = "", met: bool = False) -> Line:
    return Line(measure, against, "≥ 1 x", "1/s", "1/s", Figure(1.0, 1.0, 1.0), met)


def test_bars_start_at_zero() -> None:
    drawn = bars([("1", 50.0), ("2", 100.0)], ("workers", "runs/s")).splitlines()
    assert drawn[1].count("█") * 2 == drawn[2].count("█")


def test_each_checkout_is_measured_in_its_own_database(lab: Lab) -> None:
    here = against.Checkout(lab, "here", outfit.ROOT)
    assert against.submit(here, "one", 20)["rate"] > 0
    assert here.sql("select count(*) from holdfast.runs") == [(22,)]
    here.close()


def test_worker_with_all_tasks_hands_back_no_runs(lab: Lab) -> None:
    worker = mixed_fleet.KnowsAll(lab, "inline")
    sample = mixed_fleet.measured(worker, runs=20)
    assert (sample["handed_back"], sample["attempts"]) == (0, 1)
    worker.close()


def test_runs_end_without_open_transactions(lab: Lab) -> None:
    worker = user_locks.Worker(lab)
    assert user_locks.measured(worker, 1.0, holding=False)["rate"] > 0
    worker.close()
