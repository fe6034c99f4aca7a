"""Holdfast and django-tasks-db as backends of one Django site, in alternating rounds on one server.

    python -m bench.django [--quick] [--rounds 5] [--only enqueue request drain] [--server stock|embedded]

The same task is enqueued with Django's `enqueue` on Django's connection, one by one: each on disk before the next, and
in one transaction, as in a request with ATOMIC_REQUESTS. One worker of each drains it: `manage.py db_worker`, and
`manage.py holdfast_worker` with child processes (its default) and inline. Prints ratios of rates within a round, and
microseconds on a core per task, which are steadier on a shared machine: where many others work, either `enqueue` mostly
waits for the disk and for a core, and the rates come together.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from functools import partial
from importlib import metadata
from typing import ClassVar

from bench import outfit
from bench.contender import Lab, PostgresContender
from bench.drain import checkpoint, filled_drain
from bench.goals import Goal
from bench.pairs import show, temporary_lab
from bench.processes import cpu_seconds
from bench.rounds import Entry, Outcome, Sample, alternate

PINS = outfit.HERE / "django_peers.txt"
PEER_PYTHON = outfit.SCRATCH / "django" / "bin" / "python"


class Site(PostgresContender):
    """The site with one backend."""

    backend: ClassVar[str]
    python: ClassVar[str]
    worker: ClassVar[tuple[str, ...]]
    config = ""

    @property
    def database(self) -> str:
        return f"{self.lab.prefix}_{self.backend}"

    def environment(self) -> dict[str, str]:
        return self._environment(self.url)

    def _environment(self, url: str) -> dict[str, str]:
        given = {"BENCH_BACKEND": self.backend, "BENCH_DATABASE": url}
        return self.lab.environment(DJANGO_SETTINGS_MODULE="bench.django_site.settings", **given)

    def make_schema(self, url: str) -> None:
        migrate = [self.python, "-m", "django", "migrate", "--verbosity=0"]
        subprocess.run(migrate, env=self._environment(url), cwd=outfit.ROOT, check=True)

    def client_command(self) -> list[str]:
        return [self.python, "-m", "bench.django_site.client"]

    def worker_commands(self, workers: int) -> list[list[str]]:
        return [[self.python, "-m", "django", *self.worker, "--no-reload"]] * workers


class HoldfastSite(Site):
    name = "holdfast"
    backend = "holdfast"
    python = sys.executable
    worker = ("holdfast_worker",)

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab)
        self.versions = {name: metadata.version(name) for name in ("holdfast", "django", "psycopg")}

    def unfinished(self, total: int) -> bool:
        found = self.sql("select exists (select from holdfast.ready) or exists (select from holdfast.leases)")
        return bool(found[0][0])

    def verify(self, total: int) -> None:
        found = self.sql("select count(*) from holdfast.attempts where outcome = 'SUCCEEDED' and number = 1")
        assert found[0][0] == total, f"{found[0][0]} of {total} succeeded"


class InlineSite(HoldfastSite):
    name = "holdfast-inline"
    worker = ("holdfast_worker", "--executor=inline")


class DatabaseSite(Site):
    name = "django-tasks-db"
    backend = "django_tasks_db"
    python = str(PEER_PYTHON)
    worker = ("db_worker", "--no-startup-delay", "--verbosity=0")

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab)
        self.versions = {}
        if not PEER_PYTHON.exists():
            self.missing = f"could not be installed from {PINS.name}"

    def unfinished(self, total: int) -> bool:
        found = self.sql(
            "select exists (select from django_tasks_database_dbtaskresult where status in ('READY', 'RUNNING'))"
        )
        return bool(found[0][0])

    def verify(self, total: int) -> None:
        found = self.sql("select count(*) from django_tasks_database_dbtaskresult where status = 'SUCCESSFUL'")
        assert found[0][0] == total, f"{found[0][0]} of {total} succeeded"


def install_peer() -> None:
    """Install django-tasks-db into an environment of its own, unless it is there."""
    stamp = PEER_PYTHON.parent.parent / PINS.name
    if stamp.is_file() and stamp.read_text() == PINS.read_text():
        return
    outfit.SCRATCH.mkdir(exist_ok=True)
    (outfit.SCRATCH / ".gitignore").write_text("*\n")
    subprocess.run([sys.executable, "-m", "venv", "--clear", stamp.parent], check=True)
    pip = [str(PEER_PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", str(PINS)], check=True)
    stamp.write_text(PINS.read_text())


def enqueue(site: Site, count: int, *, together: bool = False) -> Sample:
    """Enqueue one by one, each committed before the next or `together` in one transaction. No worker runs."""
    site.fresh()
    checkpoint(site)
    with site.client() as client:
        # The first ones pay for connections and imports, which a program does once.
        client.ask("one", 0, count // 10, together=together)
        client_cpu, server_cpu = cpu_seconds([client.pid]), cpu_seconds(site.backends())
        seconds = client.ask("one", count // 10, count, together=together)
        client_cpu, server_cpu = cpu_seconds([client.pid]) - client_cpu, cpu_seconds(site.backends()) - server_cpu
    return {"rate": count / seconds, "client_us": client_cpu / count * 1e6, "server_us": server_cpu / count * 1e6}


PEER = ("django-tasks-db", "rate")
US = " µs"
GOALS = (
    Goal("enqueue one by one", "enqueue", ("holdfast", "rate"), PEER, "django-tasks-db", least=1.5),
    Goal("  client's core per task", "enqueue", ("holdfast", "client_us"), (PEER[0], "client_us"), most=1.0, unit=US),
    Goal("  server's core per task", "enqueue", ("holdfast", "server_us"), (PEER[0], "server_us"), most=1.0, unit=US),
    Goal("enqueue in a transaction", "request", ("holdfast", "rate"), PEER, "django-tasks-db", least=1.5),
    Goal("  client's core per task", "request", ("holdfast", "client_us"), (PEER[0], "client_us"), most=1.0, unit=US),
    Goal("  server's core per task", "request", ("holdfast", "server_us"), (PEER[0], "server_us"), most=1.0, unit=US),
    Goal("drain, 1 worker, child processes", "drain", ("holdfast", "rate"), PEER, "db_worker", least=20),
    Goal("drain, 1 worker, inline", "drain", ("holdfast-inline", "rate"), PEER, "db_worker", least=20),
    Goal("  worker's core per task", "drain", ("holdfast", "worker_us"), (PEER[0], "worker_us"), most=0.2, unit=US),
    Goal("  server's core per task", "drain", ("holdfast", "server_us"), (PEER[0], "server_us"), most=0.2, unit=US),
)


def experiments(lab: Lab, quick: bool) -> dict[str, list[Entry]]:
    enqueued, drained, peer_drained = (300, 4_000, 200) if quick else (1_500, 20_000, 1_000)
    measure = partial(enqueue, count=enqueued)
    sites = (HoldfastSite(lab), InlineSite(lab))
    peer = DatabaseSite(lab)
    return {
        "enqueue": [Entry(site.name, site, measure) for site in (sites[0], peer)],
        "request": [Entry(site.name, site, partial(measure, together=True)) for site in (sites[0], peer)],
        "drain": [
            *(Entry(site.name, site, partial(filled_drain, total=drained)) for site in sites),
            Entry(peer.name, peer, partial(filled_drain, total=peer_drained)),
        ],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round, small sizes: to see that it works")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=("enqueue", "request", "drain"))
    parser.add_argument("--server", choices=("stock", "embedded"), default="stock")
    options = parser.parse_args()
    install_peer()
    outcomes: dict[str, Outcome] = {}
    with temporary_lab(options.server) as lab:
        for name, entries in experiments(lab, options.quick).items():
            if not options.only or name in options.only:
                outcomes[name] = alternate(name, entries, 1 if options.quick else options.rounds)
    return show([goal for goal in GOALS if goal.experiment in outcomes], outcomes)


if __name__ == "__main__":
    sys.exit(main())
