"""How many runs an executor should hold: as many as it has slots, and more while they are tiny.

Runs that take microseconds must be claimed by the hundred, or the worker spends its time on round trips. Runs that take
seconds must not be claimed before there is a free slot, or they wait here while another worker is idle.
"""

from __future__ import annotations

# How many seconds of work each slot may have waiting while the next batch is being claimed.
AHEAD_SECONDS = 0.05


class Pace:
    """The recent mean duration of runs. It rises at once when runs become longer, and falls gradually."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.mean: float | None = None

    def record(self, count: int, seconds: float) -> None:
        mean = seconds / count
        self.mean = mean if self.mean is None or mean > self.mean else (self.mean + mean) / 2

    def wanted(self, slots: int, longest_now: float = 0.0) -> int:
        """Return how many runs to hold; `longest_now` is how long the oldest of them has been running."""
        if self.mean is None:
            return slots
        expected = max(self.mean, longest_now, 1e-6)
        return min(self.most, slots + int(slots * AHEAD_SECONDS / expected))
