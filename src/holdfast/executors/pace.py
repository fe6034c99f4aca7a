"""How many runs an executor can use: as many as it has slots, and more while they are tiny.

Runs that take microseconds must be claimed by the hundred, or the round trip to the database is all there is. Runs that
take seconds must not be claimed before there is a slot, or they wait here while another worker is idle.
"""

from __future__ import annotations

# So much work may lie ready for each slot while the next batch is on its way.
AHEAD_SECONDS = 0.05


class Pace:
    """The recent mean duration of runs. It rises at once when runs become longer, and sinks by and by."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.mean: float | None = None

    def saw(self, count: int, seconds: float) -> None:
        mean = seconds / count
        self.mean = mean if self.mean is None or mean > self.mean else (self.mean + mean) / 2

    def wanted(self, slots: int, longest_now: float = 0.0) -> int:
        """How many runs to hold at once; `longest_now` is how long the oldest of them has been running."""
        if self.mean is None:
            return slots
        expected = max(self.mean, longest_now, 1e-6)
        return min(self.most, slots + int(slots * AHEAD_SECONDS / expected))
