"""The forecast as a picture: the median, and the range in which nine of ten paths end."""

from __future__ import annotations

from typing import Any

from django.utils.html import format_html

WIDTH, HEIGHT = 640, 240


def plot(result: dict[str, Any]) -> str:
    months = result["months"]
    low, high = min(one["p05"] for one in months), max(one["p95"] for one in months)

    def points(name: str, *, backwards: bool = False) -> str:
        pairs = [
            (WIDTH * index / max(len(months) - 1, 1), HEIGHT * (high - one[name]) / max(high - low, 1e-9))
            for index, one in enumerate(months)
        ]
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in (reversed(pairs) if backwards else pairs))

    return format_html(
        '<figure><svg viewBox="0 0 {} {}" role="img" aria-label="Forecast"><polygon points="{} {}" fill="#cfe3f5"/>'
        '<polyline points="{}" fill="none" stroke="#1b5e9e" stroke-width="2"/></svg>'
        "<figcaption>Median and range of nine in ten paths over {} months, from {} to {}.</figcaption></figure>",
        WIDTH,
        HEIGHT,
        points("p95"),
        points("p05", backwards=True),
        points("p50"),
        len(months),
        f"{low:.3g}",
        f"{high:.3g}",
    )
