"""The lines of the table: what is compared with what, and how far it has to go."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from bench.rounds import Outcome, Sample

Outcomes = Mapping[str, Outcome]


class Figure(NamedTuple):
    """The median over the rounds, and their range."""

    middle: float
    least: float
    most: float


class Line(NamedTuple):
    """One line as it is shown. `met` is None where a figure is missing."""

    measure: str
    against: str
    goal: str
    ours: str
    theirs: str
    figure: Figure | None
    met: bool | None
    note: str = ""


def middle(values: Sequence[float]) -> Figure | None:
    return Figure(statistics.median(values), min(values), max(values)) if values else None


def column(outcome: Outcome | None, who: str, key: str) -> list[float]:
    samples: list[Sample] = outcome.samples.get(who, []) if outcome else []
    return [sample[key] for sample in samples if key in sample]


def ratios(outcome: Outcome | None, ours: tuple[str, str], theirs: tuple[str, str]) -> list[float]:
    """Round by round, ours divided by theirs."""
    if outcome is None:
        return []
    pairs = zip(outcome.samples.get(ours[0], []), outcome.samples.get(theirs[0], []), strict=False)
    return [one[ours[1]] / other[theirs[1]] for one, other in pairs if ours[1] in one and other.get(theirs[1])]


class Goal(NamedTuple):
    """`least` or `most` bounds ours divided by theirs, round by round; or ours itself, where there is no `theirs`.

    `ours` and `theirs` name a participant of the experiment and the key in its samples.
    """

    measure: str
    experiment: str
    ours: tuple[str, str]
    theirs: tuple[str, str] | None = None
    against: str = ""
    least: float | None = None
    most: float | None = None
    unit: str = "/s"

    def line(self, outcomes: Outcomes) -> Line:
        outcome = outcomes.get(self.experiment)
        ours = column(outcome, *self.ours)
        values = ratios(outcome, self.ours, self.theirs) if self.theirs else ours
        figure = middle(values)
        theirs = column(outcome, *self.theirs) if self.theirs else []
        return Line(
            self.measure,
            self.against,
            self.bound(),
            shown(middle(ours), self.unit),
            shown(middle(theirs), self.unit),
            figure,
            self.judge(figure),
            _why_missing(outcome, self.ours, self.theirs) if figure is None else "",
        )

    def bound(self) -> str:
        unit = "" if self.theirs else self.unit
        ratio = " x" if self.theirs else ""
        return f"≥ {self.least:g}{ratio}" if self.least is not None else f"≤ {self.most:g}{ratio}{unit}"

    def judge(self, figure: Figure | None) -> bool | None:
        if figure is None:
            return None
        return figure.middle >= self.least if self.least is not None else figure.middle <= (self.most or 0.0)


def shown(figure: Figure | None, unit: str) -> str:
    if figure is None:
        return ""
    value = figure.middle
    text = f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"
    return f"{text}{unit}"


def _why_missing(outcome: Outcome | None, ours: tuple[str, str], theirs: tuple[str, str] | None) -> str:
    if outcome is None:
        return "not measured in this run"
    for who, _ in (ours, *([theirs] if theirs else [])):
        if who in outcome.absent:
            return f"absent: {outcome.absent[who]}"
    return outcome.errors[-1].splitlines()[0] if outcome.errors else "no figure"


def fastest(outcomes: Outcomes) -> Line:
    """Two workers compared with the fastest of all peers."""
    outcome = outcomes.get("drain-2")
    medians = {
        who: figure.middle
        for who in (outcome.samples if outcome else {})
        if who != "holdfast" and (figure := middle(column(outcome, who, "rate")))
    }
    best = max(medians, key=lambda who: medians[who], default="pgqueuer")
    against = f"the fastest peer ({best})"
    return Goal("drain, 2 workers, inline", "drain-2", ("holdfast", "rate"), (best, "rate"), against, least=1.1).line(
        outcomes
    )


OURS = ("holdfast", "rate")
LINES: tuple[Goal | Callable[[Outcomes], Line], ...] = (
    Goal("drain, 1 worker, inline", "drain-1", OURS, ("pgqueuer", "rate"), "PGQueuer, batch 1000", least=1.8),
    Goal("drain, 1 worker, inline", "drain-1", OURS, ("graphile", "rate"), "Graphile, batched", least=1.2),
    fastest,
    Goal("drain, child processes", "drain-process", ("holdfast-process", "rate"), ("huey", "rate"), "Huey", least=2.0),
    Goal(
        "drain, child processes",
        "drain-process",
        ("holdfast-process", "rate"),
        ("celery", "rate"),
        "Celery prefork",
        least=10.0,
    ),
    Goal("submit one by one", "submit-one", OURS, ("pgqueuer", "rate"), "PGQueuer", least=1.0),
    Goal("submit in bulk", "submit-bulk", OURS, ("pg-boss", "rate"), "pg-boss", least=1.2),
    Goal("submit in bulk", "submit-bulk", OURS, ("pgqueuer", "rate"), "PGQueuer", least=1.0),
    Goal("submit → body, p50", "latency", ("holdfast", "p50"), ("pgqueuer", "p50"), "PGQueuer", most=0.6, unit=" ms"),
    Goal("submit → body, p99", "latency", ("holdfast", "p99"), ("pgqueuer", "p99"), "PGQueuer", most=1.0, unit=" ms"),
    Goal("whole lifecycle", "floor", ("holdfast", "lifecycle"), ("floor", "rate"), "pgbench, by hundreds", least=0.5),
    Goal(
        "1,000,000 pending, 10,000,000 finished",
        "history",
        ("loaded", "rate"),
        ("small", "rate"),
        "1,000 pending, none finished",
        least=0.9,
    ),
    Goal("held snapshot, 200,000 runs", "snapshot", ("snapshot", "rate"), ("alone", "rate"), "without it", least=0.9),
    Goal(
        "held snapshot, last tenth",
        "snapshot",
        ("snapshot", "last_tenth"),
        ("snapshot", "first_tenth"),
        "first tenth",
        least=0.9,
    ),
    Goal("WAL per run", "wal", ("holdfast", "bytes"), ("pgqueuer", "bytes"), "PGQueuer", most=0.65, unit=" B"),
    Goal("WAL per run", "wal", ("holdfast", "bytes"), ("graphile", "bytes"), "Graphile", most=1.4, unit=" B"),
    Goal("idle worker, transactions", "idle", ("holdfast-process", "transactions"), most=0.3),
    Goal("idle worker, share of a core", "idle", ("holdfast-process", "core"), most=0.005, unit=""),
    Goal("memory, supervisor", "memory", ("holdfast-process", "supervisor"), most=60, unit=" MB"),
    Goal(
        "memory, child",
        "memory",
        ("holdfast-process", "child"),
        ("holdfast-process", "supervisor"),
        "supervisor",
        most=1.0,
        unit=" MB",
    ),
    Goal("memory, growth after a tenth", "memory", ("holdfast-process", "grown"), most=1.05, unit=" x"),
    Goal(
        "canonical hash of 1 KB",
        "hash",
        ("holdfast", "microseconds"),
        ("holdfast", "plain"),
        "orjson.dumps",
        most=3.0,
        unit=" µs",
    ),
    Goal("holdfast --help", "help", ("holdfast", "milliseconds"), most=300, unit=" ms"),
)


def lines(outcomes: Outcomes) -> list[Line]:
    return [one.line(outcomes) if isinstance(one, Goal) else one(outcomes) for one in LINES]
