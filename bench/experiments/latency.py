"""Latency: from the call that submits until the body begins, with an idle worker, and with several that wait."""

from __future__ import annotations

from functools import partial

from bench.contender import Contender, Lab
from bench.contenders import Holdfast, HoldfastProcess, PGQueuer
from bench.rounds import Entry, Experiment, Sample, Sizes

WARM_UP = 5
FLEET = 4
START_SECONDS = 30.0


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def latency(contender: Contender, count: int, workers: int = 1) -> Sample:
    board = contender.lab.board
    contender.fresh()
    board.clear()
    with contender.workers(workers) as crew, contender.client() as client:
        client.ask("one", 0, 1)
        if not board.wait(0, START_SECONDS):
            crew.check()
            raise TimeoutError(f"the worker of {contender.name} did not start")
        client.ask("latency", 1, WARM_UP)
        client.ask("latency", 100, count)
        crew.check()
    slots = range(100, 100 + count)
    waits = [(board.began[at] - board.asked[at]) / 1e6 for at in slots if board.began[at]]
    if len(waits) < count:
        raise RuntimeError(f"{count - len(waits)} of {count} runs did not start in time")
    sample = {"p50": percentile(waits, 0.5), "p99": percentile(waits, 0.99), "most": max(waits)}
    return sample | ({"handed": handed_over(contender)} if isinstance(contender, Holdfast) else {})


def handed_over(contender: Holdfast) -> float:
    """The share of runs that were leased to a waiting worker by the statement that made them."""
    found = contender.sql("""
        select avg((attempts.claimed_at = runs.created_at)::integer)::float8
        from holdfast.runs join holdfast.attempts on attempts.run_id = runs.id and attempts.number = 1""")
    return float(found[0][0] or 0.0)


def idle_worker(lab: Lab, sizes: Sizes) -> list[Entry]:
    measure = partial(latency, count=sizes.latency)
    return [Entry(kind.name, kind(lab), measure) for kind in (Holdfast, PGQueuer, HoldfastProcess)]


def waiting_workers(lab: Lab, sizes: Sizes) -> list[Entry]:
    measure = partial(latency, count=sizes.latency, workers=FLEET)
    return [Entry(kind.name, kind(lab), measure) for kind in (Holdfast, PGQueuer)]


EXPERIMENTS = (
    Experiment("latency", "submit until the body begins, idle worker, milliseconds", idle_worker),
    Experiment("latency-waiting", f"the same, {FLEET} idle workers", waiting_workers),
)
