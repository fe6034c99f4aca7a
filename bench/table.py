"""The table, for people."""

from __future__ import annotations

from collections.abc import Sequence

from bench.goals import Line

HEAD = ("measure", "ours", "against", "theirs", "ratio or figure (range)", "goal", "")


def judged(line: Line) -> str:
    return {True: "met", False: "NOT MET", None: "-"}[line.met]


def figure(line: Line) -> str:
    if line.figure is None:
        return line.note
    middle, least, most = line.figure
    spread = f" ({least:,.3g}..{most:,.3g})" if least != most else ""
    return f"{middle:,.3g}{spread}"


def cells(line: Line) -> tuple[str, ...]:
    return (line.measure, line.ours, line.against, line.theirs, figure(line), line.goal, judged(line))


def table(lines: Sequence[Line]) -> str:
    rows = [HEAD, *(cells(line) for line in lines)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEAD))]
    drawn = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([drawn[0], "  ".join("-" * width for width in widths), *drawn[1:]])


def markdown(lines: Sequence[Line]) -> str:
    rows = ["| " + " | ".join(HEAD) + " |", "|" + " --- |" * len(HEAD)]
    rows += ["| " + " | ".join(cell.replace("NOT MET", "**not met**") for cell in cells(line)) + " |" for line in lines]
    return "\n".join(rows)


def met_before(page: str) -> set[tuple[str, str]]:
    """Return the lines of a page that `markdown` wrote, by measure and peer, whose goals were met."""
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in page.splitlines() if row.startswith("| ")]
    return {(row[0], _peer(row[2])) for row in rows if len(row) == len(HEAD) and row[-1] == "met"}


def lost(lines: Sequence[Line], before: set[tuple[str, str]]) -> list[Line]:
    """Return the lines that were met before and were measured and not met now."""
    return [line for line in lines if line.met is False and (line.measure, _peer(line.against)) in before]


def _peer(against: str) -> str:
    """Leave out which peer was the fastest, because another one may be the next time."""
    return against.partition(" (")[0]
