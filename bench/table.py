"""The table, for people."""

from __future__ import annotations

from collections.abc import Sequence

from bench.goals import Line

HEAD = ("measure", "ours", "against", "theirs", "ratio or figure (range)", "goal", "")


def ack(line: Line) -> str:
    return {True: "met", False: "NOT MET", None: "-"}[line.met]


def figure(line: Line) -> str:
    if line.figure is None:
        return line.note
    middle, least, most = line.figure
    spread = f" ({least:,.3g}..{most:,.3g})" if least != most else ""
    return f"{middle:,.3g}{spread}"


def cells(line: Line) -> tuple[str, ...]:
    return (line.measure, line.ours, line.against, line.theirs, figure(line), line.goal, ack(line))


def table(lines: Sequence[Line]) -> str:
    rows = [HEAD, *(cells(line) for line in lines)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEAD))]
    drawn = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([drawn[0], "  ".join("-" * width for width in widths), *drawn[1:]])


def markdown(lines: Sequence[Line]) -> str:
    rows = ["| " + " | ".join(HEAD) + " |", "|" + " --- |" * len(HEAD)]
    rows += ["| " + " | ".join(cell.replace("NOT MET", "**not met**") for cell in cells(line)) + " |" for line in lines]
    return "\n".join(rows)
