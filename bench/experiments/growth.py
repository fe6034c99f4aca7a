"""How cost grows: under a held snapshot, with backlog and history, with workers, payload and fan-out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

from bench.contender import Lab
from bench.contenders import Holdfast
from bench.data import history, pending
from bench.drain import begun, checkpoint, drain, filled_drain
from bench.rounds import Entry, Experiment, Sample, Sizes

AHEAD = 1000


def drained(contender: Holdfast, total: int, snapshot: bool) -> Sample:
    contender.fresh()
    pending(contender, total)
    with contender.held_snapshot() if snapshot else contextlib.nullcontext():
        sample = drain(contender, total)
    return sample | {"tenths": sample["last_tenth"] / sample["first_tenth"]}


class Loaded(Holdfast):
    """A store that stays between rounds, with waiting and ended runs."""

    name = "loaded"
    filled = False
    offset = 0

    @property
    def database(self) -> str:
        return f"{self.lab.prefix}_loaded"

    def prepare(self, waiting: int, ended: int) -> None:
        if not self.filled:
            self.fresh()
            history(self, ended)
            pending(self, waiting)
            self.filled = True


def steady(contender: Holdfast, count: int, *, first: int, fed: int) -> Sample:
    """Bodies per second while a feeder adds as many runs as are drained: the backlog stays as long as it is."""
    ahead = min(AHEAD, count // 2)
    checkpoint(contender)
    contender.lab.board.clear()
    with contender.client() as client, contender.workers() as crew:
        client.tell("feed", fed, count, ahead=ahead, pace=first)
        times = begun(contender, crew, count - ahead, first)[count // 10 :]
    return {"rate": (len(times) - 1) / ((times[-1] - times[0]) / 1e9)}


def drain_without_history(contender: Holdfast, count: int) -> Sample:
    contender.fresh()
    return steady(contender, count, first=0, fed=0)


def drain_with_history(contender: Loaded, count: int, waiting: int, ended: int) -> Sample:
    contender.prepare(waiting, ended)
    sample = steady(contender, count, first=contender.offset, fed=waiting + 2 * contender.offset)
    # A stopped worker has begun a few more than were counted.
    contender.offset += 2 * count
    return sample


def snapshots(lab: Lab, sizes: Sizes) -> list[Entry]:
    ours = Holdfast(lab)
    return [
        Entry("alone", ours, partial(drained, total=sizes.snapshot, snapshot=False)),
        Entry("snapshot", ours, partial(drained, total=sizes.snapshot, snapshot=True)),
    ]


def histories(lab: Lab, sizes: Sizes) -> list[Entry]:
    loaded = partial(drain_with_history, count=sizes.loaded, waiting=sizes.pending, ended=sizes.history)
    return [
        Entry("small", Holdfast(lab), partial(drain_without_history, count=sizes.loaded)),
        Entry("loaded", Loaded(lab), loaded),
    ]


def first_of(contender: Holdfast, count: int, fill: Callable[[Holdfast], None]) -> Sample:
    """Bodies per second of the first `count` runs."""
    contender.fresh()
    fill(contender)
    checkpoint(contender)
    contender.lab.board.clear()
    with contender.workers() as crew:
        times = begun(contender, crew, count)
    return {"rate": (count - 1) / ((times[-1] - times[0]) / 1e9)}


def _with_history(contender: Holdfast, ended: int, waiting: int) -> None:
    if ended:
        history(contender, ended)
    pending(contender, waiting)


def with_payload(contender: Holdfast, total: int, size: int) -> Sample:
    contender.fresh()
    submitted = total / contender.submit("bulk", total, payload=size)
    return {"submit": submitted, "rate": drain(contender, total)["rate"]}


def backlogs(lab: Lab, sizes: Sizes) -> list[Entry]:
    ours = Holdfast(lab)
    most = max(sizes.pending, sizes.curve)
    lengths = sorted({min(most, sizes.curve * factor) for factor in (1, 3, 10, 33)})
    return [
        Entry(str(length), ours, partial(first_of, count=sizes.curve, fill=partial(pending, count=length)))
        for length in lengths
    ]


def ended_runs(lab: Lab, sizes: Sizes) -> list[Entry]:
    ours = Holdfast(lab)
    lengths = sorted({0, sizes.curve * 3, sizes.curve * 10, sizes.curve * 33})
    return [
        Entry(
            str(length),
            ours,
            partial(first_of, count=sizes.curve, fill=partial(_with_history, ended=length, waiting=sizes.curve)),
        )
        for length in lengths
    ]


def crews(lab: Lab, sizes: Sizes) -> list[Entry]:
    ours = Holdfast(lab)
    return [Entry(str(n), ours, partial(filled_drain, total=sizes.curve, workers=n)) for n in (1, 2, 3, 4)]


def fanned(contender: Holdfast, width: int) -> Sample:
    """Items per second from the call that maps a task over them until the task that collects them begins."""
    contender.fresh()
    contender.lab.board.clear()
    with contender.client() as client, contender.workers() as crew:
        client.ask("fan", 0, 1)
        seconds = min(client.ask("fan", at, width) for at in (1, 2, 3))
        crew.check()
    return {"rate": width / seconds, "milliseconds": seconds * 1000}


def fan_outs(lab: Lab, sizes: Sizes) -> list[Entry]:
    ours = Holdfast(lab)
    return [Entry(str(width), ours, partial(fanned, width=width)) for width in (10, 100, 1_000, sizes.fan)]


def payloads(lab: Lab, sizes: Sizes) -> list[Entry]:
    ours = Holdfast(lab)
    return [
        Entry(str(size), ours, partial(with_payload, total=max(1000, sizes.curve // max(1, size // 1000)), size=size))
        for size in (0, 1_000, 10_000, 50_000)
    ]


EXPERIMENTS = (
    Experiment("history", "a million pending and ten million finished", histories, full=True),
    Experiment("snapshot", "another session holds a REPEATABLE READ snapshot", snapshots),
    Experiment("curve-backlog", "rate against runs that wait", backlogs, rounds=2),
    Experiment("curve-history", "rate against runs that have ended", ended_runs, rounds=2),
    Experiment("curve-workers", "rate against workers", crews, rounds=2),
    Experiment("curve-fan", "rate against the width of a map that is collected", fan_outs, rounds=2),
    Experiment("curve-payload", "rate against the size of the parameters, bytes", payloads, rounds=2),
)
