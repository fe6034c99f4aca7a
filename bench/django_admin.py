"""How long the admin's list of runs takes with a million runs: `python -m bench.django_admin`.

The runs are those of `bench.lists`, in four months. Each page is requested as a browser does, through Django's test
client in this process: the time is that of the whole answer, templates included. Also shown is the time that its
queries took. Ends with 1 if the middle time of a page is above the goal.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from bench.lists import fill
from holdfast.embedded import ensure_running, stop_if_unused

GOAL = 0.3
RUNS = "/admin/holdfast/run/"
PAGES = (
    "",
    "?p=20",
    "?status=PENDING",
    "?status=RUNNING",
    "?status=SUCCEEDED",
    "?status=FAILED",
    "?status=CANCELLED",
    "?queue=common",
    "?queue=rare",
    "?queue=far",
    "?queue=absent",
    "?task=second",
    "?task=rare",
    "?task=absent",
    "?q=comm",
    "?q=nothing",
    "?status=FAILED&queue=far",
    "?status=SUCCEEDED&queue=common&task=second",
    "?queue=far&task=rare",
)


def start(url: str) -> Any:
    """A site with the admin on this database, and a client of an administrator."""
    os.environ["DJANGO_TEST_DATABASE_URL"] = url
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.django.settings"
    import django

    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.test import Client

    call_command("migrate", run_syncdb=True, verbosity=0)
    client = Client()
    client.force_login(User.objects.filter(is_superuser=True).first() or User.objects.create_superuser("ann"))
    return client


def measure(client: Any, rounds: int, *, verbose: bool) -> float:
    """Request every page; returns the longest middle time."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    worst = 0.0
    for page in PAGES:
        times, cpu, queries = [], [], 0.0
        for _ in range(rounds):
            began, core = perf_counter(), process_time()
            answer = client.get(RUNS + page)
            times.append(perf_counter() - began)
            cpu.append(process_time() - core)
            assert answer.status_code == 200, page
        with CaptureQueriesContext(connection) as captured:
            client.get(RUNS + page)
        queries = sum(float(query["time"]) for query in captured)
        middle = statistics.median(times)
        worst = max(worst, middle)
        rows, more = answer.context_data["cl"].result_list, answer.context_data["cl"].result_count
        print(
            f"{page or 'first page':45s} {middle * 1000:5.0f} ms, on a core {statistics.median(cpu) * 1000:4.0f} ms, "
            f"queries {queries * 1000:5.0f} ms  {len(rows)} of {more}"
        )
        if verbose:
            for query in sorted(captured, key=lambda one: -float(one["time"]))[:3]:
                print(f"      {query['time']} s  {' '.join(query['sql'].split())[:300]}")
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.django_admin", description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--verbose", action="store_true", help="show the slowest queries of each page")
    parser.add_argument("--keep", type=Path, help="a directory whose server and runs are kept for the next time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-admin-") as directory:
        Path(directory).chmod(0o711)
        home = options.keep or Path(directory) / "home"
        with ensure_running(home, durable=False) as server:
            client = start(server.url)
            from holdfast.django.models import Run

            if not Run.objects.exists():
                began = perf_counter()
                fill(server.url, options.runs)
                print(f"{options.runs} runs, made in {perf_counter() - began:.0f} s")
            worst = measure(client, options.rounds, verbose=options.verbose)
            from django.db import connections

            connections.close_all()
        stop_if_unused(home)
    print(f"the slowest page took {worst * 1000:.0f} ms; the goal is {GOAL * 1000:.0f} ms")
    return int(worst > GOAL)


if __name__ == "__main__":
    sys.exit(main())
