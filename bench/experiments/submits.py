"""Submitting: one by one, each on disk before the next; and by the thousand."""

from __future__ import annotations

from functools import partial

from bench.contender import Contender, Lab
from bench.contenders import Holdfast, PgBoss, PGQueuer
from bench.drain import checkpoint
from bench.rounds import Entry, Experiment, Sample, Sizes


def submit(contender: Contender, what: str, count: int) -> Sample:
    contender.fresh()
    checkpoint(contender)
    with contender.client() as client:
        # The first ones pay for connections and plans, which a program does once.
        client.ask(what, 0, count // 10)
        return {"rate": count / client.ask(what, count // 10, count)}


def one_by_one(lab: Lab, sizes: Sizes) -> list[Entry]:
    measure = partial(submit, what="one", count=sizes.one_by_one)
    return [Entry(kind.name, kind(lab), measure) for kind in (Holdfast, PGQueuer)]


def bulk(lab: Lab, sizes: Sizes) -> list[Entry]:
    measure = partial(submit, what="bulk", count=sizes.bulk)
    return [Entry(kind.name, kind(lab), measure) for kind in (Holdfast, PgBoss, PGQueuer)]


EXPERIMENTS = (
    Experiment("submit-one", "one by one, one connection", one_by_one),
    Experiment("submit-bulk", "by the thousand, one connection", bulk),
)
