"""Drain rates, compared with the peers."""

from __future__ import annotations

from functools import partial

from bench.contender import Lab
from bench.contenders import Celery, Graphile, Holdfast, HoldfastProcess, Huey, PgBoss, PGQueuer
from bench.drain import filled_drain
from bench.rounds import Entry, Experiment, Sizes


def one_worker(lab: Lab, sizes: Sizes) -> list[Entry]:
    measure = partial(filled_drain, total=sizes.inline)
    return [Entry(kind.name, kind(lab), measure) for kind in (Holdfast, PGQueuer, Graphile)]


def two_workers(lab: Lab, sizes: Sizes) -> list[Entry]:
    measure = partial(filled_drain, total=sizes.inline, workers=2)
    return [Entry(kind.name, kind(lab), measure) for kind in (Holdfast, PGQueuer, Graphile, PgBoss)]


def children(lab: Lab, sizes: Sizes) -> list[Entry]:
    counts = ((HoldfastProcess, sizes.process), (Huey, sizes.huey), (Celery, sizes.celery))
    return [Entry(kind.name, kind(lab), partial(filled_drain, total=total)) for kind, total in counts]


EXPERIMENTS = (
    Experiment("drain-1", "one worker, tasks inline", one_worker),
    Experiment("drain-2", "two workers, tasks inline", two_workers),
    Experiment("drain-process", "one worker with two child processes", children),
)
