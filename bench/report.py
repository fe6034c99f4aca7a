"""Writes docs/performance.md from the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.capacity import capacity, text
from bench.figures import outcomes_of
from bench.goals import Figure, Line, Outcomes, column, middle
from bench.notes import NOTES
from bench.plots import bars
from bench.table import figure, markdown

CURVES = (
    ("curve-backlog", "Runs that wait", "pending", "runs/s, 1 worker"),
    ("curve-history", "Runs that have ended", "finished", "runs/s, 1 worker"),
    ("curve-workers", "Workers", "workers", "runs/s, all together"),
    ("curve-payload", "Size of the parameters", "bytes", "runs/s, 1 worker"),
    (
        "curve-fan",
        "Width of a map that is collected",
        "items",
        "items/s from the call until the collecting task begins",
    ),
)


def page(made: Mapping[str, Any], others: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return the page of a run; `others` were measured on other servers."""
    outcomes = outcomes_of(made)
    lines = [_line(one) for one in made["lines"]]
    parts = [
        _head(made),
        "## The table\n\n" + markdown(lines),
        _missed(lines),
        *(_server_section(other) for other in others),
        text("method"),
        _noise(made, outcomes),
        _contenders(made),
        _figures(outcomes),
        _growth(outcomes),
        capacity(made, outcomes),
    ]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _line(given: Mapping[str, Any]) -> Line:
    figure = Figure(**given["figure"]) if given["figure"] else None
    return Line(**{**given, "figure": figure})


def _head(made: Mapping[str, Any]) -> str:
    machine, postgres = made["machine"], made["postgres"]
    settings = ", ".join(f"{name} {value}" for name, value in postgres.items() if name not in ("server", "transport"))
    return (
        "# Performance\n\n"
        f"Measured by `{made['command']}` on {made['made_at'][:10]}: "
        f"{machine['cores']} cores ({machine['processor']}), "
        f"{machine['memory_gigabytes']:g} GB, Python {machine['python']}.\n"
        f"PostgreSQL ({postgres['server']}): {settings}."
    )


def _server_section(made: Mapping[str, Any]) -> str:
    """The same lines on another server, without goals: those are for the first one."""
    rows = ["| measure | ours | against | theirs | ratio or figure (range) |", "|" + " --- |" * 5]
    rows += [
        f"| {line.measure} | {line.ours} | {line.against} | {line.theirs} | {figure(line)} |"
        for line in map(_line, made["lines"])
        if line.figure is not None
    ]
    return (
        f"## PostgreSQL {made['postgres']['server_version']}\n\nMeasured by `{made['command']}` on "
        f"{made['made_at'][:10]}, with the default settings of the distribution.\n\n" + "\n".join(rows)
    )


def _missed(lines: list[Line]) -> str:
    missed = [line for line in lines if line.met is not True]
    if not missed:
        return ""
    notes = []
    for line in missed:
        note = NOTES.get(line.measure) or line.note or "see the figures below"
        notes.append(f"- **{line.measure}**{f', compared with {line.against}' if line.against else ''}: {note}")
    return "### Goals that are not met, and why\n\n" + "\n".join(dict.fromkeys(notes))


def _noise(made: Mapping[str, Any], outcomes: Outcomes) -> str:
    loads = [load for outcome in outcomes.values() for load in outcome.load] or [0.0]
    return text("noise").format(cores=made["machine"]["cores"], low=min(loads), high=max(loads))


def _contenders(made: Mapping[str, Any]) -> str:
    rows = ["## Contenders\n", "| name | versions | configuration |", "| --- | --- | --- |"]
    for name, about in made["contenders"].items():
        versions = ", ".join(f"{package} {version}" for package, version in about["versions"].items())
        rows.append(f"| {name} | {versions} | {about['config']} |")
    return "\n".join(rows)


def _figures(outcomes: Outcomes) -> str:
    """Every experiment that is no curve: each participant's samples, median and range."""
    parts = ["## Figures"]
    for name, outcome in outcomes.items():
        if name.startswith("curve-"):
            continue
        keys = list(dict.fromkeys(key for samples in outcome.samples.values() for sample in samples for key in sample))
        if not keys:
            continue
        rows = [f"### {name}\n", f"| | {' | '.join(keys)} |", "|" + " --- |" * (len(keys) + 1)]
        for who in outcome.samples:
            shown = [_shown(middle(column(outcome, who, key))) for key in keys]
            rows.append(f"| {who} | {' | '.join(shown)} |")
        rows += [f"\n{who}: {why}" for who, why in outcome.absent.items()]
        parts.append("\n".join(rows))
    parts.append(text("figures"))
    return "\n\n".join(parts)


def _shown(figure: Figure | None) -> str:
    if figure is None:
        return ""
    if figure.least == figure.most:
        return _number(figure.middle)
    return f"{_number(figure.middle)} ({_number(figure.least)}..{_number(figure.most)})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _growth(outcomes: Outcomes) -> str:
    parts = ["## How cost grows"]
    for name, title, unit, what in CURVES:
        outcome = outcomes.get(name)
        if outcome is None:
            continue
        found = [(who, middle(column(outcome, who, "rate"))) for who in sorted(outcome.samples, key=int)]
        rows = [(f"{int(who):,}", figure.middle) for who, figure in found if figure]
        if rows:
            parts.append(f"### {title}\n\n```\n{bars(rows, (unit, what))}\n```")
    return "\n\n".join(parts) if len(parts) > 1 else ""
