"""A scatter plot as SVG, in a few lines: no plotting library is needed for dots, two axes and a legend."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

WIDTH, HEIGHT, MARGIN, LEGEND = 900, 560, 60, 150
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#333333")
TICKS = 5

Point = tuple[str, float, float]


class Axis:
    """Maps the values of one direction to places on the page."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        self.low, self.high = min(values, default=0.0), max(values, default=1.0)
        self.begin, self.end = begin, end

    def place(self, value: float) -> float:
        span = self.high - self.low or 1.0
        return round(self.begin + (value - self.low) / span * (self.end - self.begin), 1)

    def ticks(self) -> list[float]:
        return [self.low + (self.high - self.low) * step / TICKS for step in range(TICKS + 1)]


def scatter(points: Sequence[Point], x: str, y: str) -> str:
    """Draw (group, x, y) with a colour for each group. Both values are fractions, and labelled in percent."""
    across = Axis([point[1] for point in points], MARGIN, WIDTH - LEGEND)
    up = Axis([point[2] for point in points], HEIGHT - MARGIN, MARGIN)
    groups = sorted({point[0] for point in points})
    colours = {group: COLOURS[index % len(COLOURS)] for index, group in enumerate(groups)}
    dots = [
        f'<circle cx="{across.place(right)}" cy="{up.place(high)}" r="3" fill="{colours[group]}" fill-opacity="0.6"/>'
        for group, right, high in points
    ]
    page = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {page}>',
            f"<title>{escape(y)} against {escape(x)}</title>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            *_axes(across, up, x, y),
            *dots,
            *_legend(colours),
            "</svg>\n",
        ]
    )


def _axes(across: Axis, up: Axis, x: str, y: str) -> list[str]:
    bottom, left = HEIGHT - MARGIN, MARGIN
    drawn = []
    for value in across.ticks():
        at = across.place(value)
        drawn.append(f'<line x1="{at}" y1="{MARGIN}" x2="{at}" y2="{bottom}" stroke="#ddd"/>')
        drawn.append(f'<text x="{at}" y="{bottom + 18}" text-anchor="middle">{value:.0%}</text>')
    for value in up.ticks():
        at = up.place(value)
        drawn.append(f'<line x1="{left}" y1="{at}" x2="{across.end}" y2="{at}" stroke="#ddd"/>')
        drawn.append(f'<text x="{left - 8}" y="{at + 4}" text-anchor="end">{value:.0%}</text>')
    drawn.append(f'<text x="{across.end}" y="{HEIGHT - 16}" text-anchor="end">{escape(x)}</text>')
    drawn.append(f'<text x="{left}" y="{MARGIN - 24}">{escape(y)}</text>')
    return drawn


def _legend(colours: dict[str, str]) -> list[str]:
    drawn = []
    for line, (group, colour) in enumerate(colours.items()):
        top = MARGIN + 22 * line
        drawn.append(f'<circle cx="{WIDTH - LEGEND + 20}" cy="{top}" r="5" fill="{colour}"/>')
        drawn.append(f'<text x="{WIDTH - LEGEND + 32}" y="{top + 4}">{escape(group)}</text>')
    return drawn
