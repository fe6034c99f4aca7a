"""What a run costs the server, what an idle worker costs, and how much memory workers take."""

from __future__ import annotations

import time
from functools import partial

from bench.contender import Lab, PostgresContender
from bench.contenders import Graphile, Holdfast, HoldfastProcess, PGQueuer
from bench.data import pending
from bench.drain import begun, checkpoint, drain, finished
from bench.processes import cpu_seconds, resident_megabytes
from bench.rounds import Entry, Experiment, Sample, Sizes
from holdfast.processes.family import family


def _log_position(lab: Lab) -> int:
    with lab.admin() as admin:
        found = admin.execute("select pg_current_wal_insert_lsn() - '0/0'").fetchone()
    assert found is not None
    return int(found[0])


def log_bytes(contender: PostgresContender, total: int) -> Sample:
    """Bytes of write-ahead log per run, submitted one by one and drained by one worker."""
    contender.fresh()
    checkpoint(contender)
    before = _log_position(contender.lab)
    contender.submit("one", total)
    between = _log_position(contender.lab)
    drain(contender, total)
    after = _log_position(contender.lab)
    return {
        "bytes": (after - before) / total,
        "submit": (between - before) / total,
        "drain": (after - between) / total,
    }


def idle(contender: PostgresContender, warm_up: float, seconds: float) -> Sample:
    """Transactions per second and share of a core, of a worker that has nothing to do."""
    contender.fresh()
    contender.lab.board.clear()
    with contender.workers() as crew:
        contender.submit("one", 1)
        begun(contender, crew, 1)
        # A backend that falls idle reports what it did up to ten seconds late.
        time.sleep(warm_up)
        transactions, cpu, started = _transactions(contender), cpu_seconds(crew.pids()), time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - started
        crew.check()
        return {
            "transactions": (_transactions(contender) - transactions) / took,
            "core": (cpu_seconds(crew.pids()) - cpu) / took,
        }


def _transactions(contender: PostgresContender) -> int:
    with contender.lab.admin() as admin:
        asked = "select xact_commit + xact_rollback from pg_stat_database where datname = %s"
        found = admin.execute(asked, [contender.database]).fetchone()
    return int(found[0]) if found else 0


def memory(contender: Holdfast, total: int) -> Sample:
    """Megabytes of the worker and of its children after a tenth of the runs, and after all of them."""
    contender.fresh()
    contender.lab.board.clear()
    pending(contender, total)
    with contender.workers() as crew:
        begun(contender, crew, total // 10)
        early = _weigh(crew.processes[0].pid)
        begun(contender, crew, total, timeout=60 + total / 1000)
        finished(contender, crew, total)
        late = _weigh(crew.processes[0].pid)
    return {
        "supervisor": late[0],
        "child": late[1],
        "grown": late[0] / early[0],
        "child_grown": late[1] / (early[1] or 1),
    }


def _weigh(pid: int) -> tuple[float, float]:
    """The worker's megabytes, and those of its largest child."""
    first, *others = family(pid)
    return resident_megabytes(first), max((resident_megabytes(other) for other in others), default=0.0)


def write_ahead_log(lab: Lab, sizes: Sizes) -> list[Entry]:
    return [
        Entry(kind.name, kind(lab), partial(log_bytes, total=sizes.cost)) for kind in (Holdfast, PGQueuer, Graphile)
    ]


def idle_workers(lab: Lab, sizes: Sizes) -> list[Entry]:
    measure = partial(idle, warm_up=sizes.idle_warmup, seconds=sizes.idle_seconds)
    return [Entry(kind.name, kind(lab), measure) for kind in (HoldfastProcess, PGQueuer)]


def weights(lab: Lab, sizes: Sizes) -> list[Entry]:
    return [Entry(kind.name, kind(lab), partial(memory, total=sizes.memory)) for kind in (Holdfast, HoldfastProcess)]


EXPERIMENTS = (
    Experiment("wal", "bytes of write-ahead log per run", write_ahead_log),
    Experiment("idle", "an idle worker", idle_workers, rounds=1),
    Experiment("memory", "megabytes of a worker and its children", weights, rounds=1),
)
