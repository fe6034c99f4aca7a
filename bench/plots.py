"""Plots made of characters: they show in any reader, and a change of them shows in a diff."""

from __future__ import annotations

from collections.abc import Sequence

EIGHTHS = " ▏▎▍▌▋▊▉█"
WIDTH = 40


def bar(share: float) -> str:
    """A bar of at most WIDTH characters, to an eighth of one."""
    eighths = round(max(0.0, min(1.0, share)) * WIDTH * 8)
    return ("█" * (eighths // 8) + EIGHTHS[eighths % 8]).rstrip()


def bars(rows: Sequence[tuple[str, float]], head: tuple[str, str]) -> str:
    """One line for each value, from zero on."""
    most = max((value for _, value in rows), default=1.0) or 1.0
    wide = max(len(head[0]), *(len(name) for name, _ in rows)) if rows else len(head[0])
    lines = [f"{head[0]:>{wide}}  {head[1]}"]
    lines += [f"{name:>{wide}}  {bar(value / most):{WIDTH}s}  {value:,.0f}" for name, value in rows]
    return "\n".join(line.rstrip() for line in lines)
