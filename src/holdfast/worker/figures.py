"""Metrics of one worker, in the text format of Prometheus.

They are kept only if the worker has a port. The event loop's thread writes them and another thread reads them, so a
number may be slightly out of date but is never wrong.
"""

from __future__ import annotations

import resource
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from time import time
from typing import NamedTuple

from holdfast.domain.states import Status
from holdfast.domain.tasks import registry
from holdfast.domain.values import Claim
from holdfast.sql.tallies import BOUNDS

# How an attempt may end: PENDING means that it is retried, FENCED that its result was rejected.
STATUSES = (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, Status.PENDING, "FENCED")

Labels = tuple[tuple[str, str], ...]


class Family(NamedTuple):
    """One metric: its name, kind and meaning, and its values by labels; those of a histogram by suffix too."""

    name: str
    kind: str
    about: str
    values: Mapping[Labels, float]
    suffixes: Mapping[str, Mapping[Labels, float]] = {}

    def text(self) -> str:
        lines = [f"# HELP {self.name} {self.about}", f"# TYPE {self.name} {self.kind}"]
        for suffix, values in {"": self.values, **self.suffixes}.items():
            for labels, number in values.items():
                named = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
                lines.append(f"{self.name}{suffix}{f'{{{named}}}' if named else ''} {number!r}")
        return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class Waits:
    """How long the runs of a queue waited until they started."""

    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds


class Figures:
    """Counts the attempts that a worker started and ended, by queue and task, since its process started."""

    def __init__(self) -> None:
        self.began_at = time()
        self._started: Counter[tuple[str, str]] = Counter()
        self._ended: Counter[tuple[str, str, str]] = Counter()
        self._waits: dict[str, Waits] = {}

    def know_tasks(self) -> None:
        """Start the counters of every registered task at zero, for the task's default queue."""
        for name in registry.names():
            queue = registry.get(name).queue
            self._started[queue, name] += 0
            self._waits.setdefault(queue, Waits())
            for status in STATUSES:
                self._ended[queue, name, str(status)] += 0

    def started(self, claims: Sequence[Claim]) -> None:
        self._started.update([(claim.queue, claim.task) for claim in claims])
        for claim in claims:
            if claim.number == 1:
                waits = self._waits.get(claim.queue)
                if waits is None:
                    waits = self._waits[claim.queue] = Waits()
                waits.add(claim.lag)

    def ended(self, claim: Claim, status: str) -> None:
        self._ended[claim.queue, claim.task, status] += 1

    def families(self) -> Iterable[Family]:
        yield Family(
            "holdfast_worker_runs_started_total",
            "counter",
            "Attempts that this worker started.",
            {(("queue", queue), ("task", task)): float(n) for (queue, task), n in list(self._started.items())},
        )
        yield Family(
            "holdfast_worker_runs_ended_total",
            "counter",
            "Attempts of this worker that ended; PENDING means retried, FENCED means rejected.",
            {
                (("queue", queue), ("task", task), ("status", status)): float(n)
                for (queue, task, status), n in list(self._ended.items())
            },
        )
        yield self._waiting()
        yield from self._process()

    def _waiting(self) -> Family:
        buckets: dict[Labels, float] = {}
        for queue, waits in list(self._waits.items()):
            for bound, below in zip((*map(repr, BOUNDS), "+Inf"), accumulate(waits.buckets), strict=True):
                buckets[("queue", queue), ("le", bound)] = float(below)
        counts: dict[Labels, float] = {
            (("queue", queue),): float(sum(waits.buckets)) for queue, waits in list(self._waits.items())
        }
        sums: dict[Labels, float] = {(("queue", queue),): waits.seconds for queue, waits in list(self._waits.items())}
        return Family(
            "holdfast_worker_run_wait_seconds",
            "histogram",
            "Time from when a run was due until its first attempt started.",
            {},
            {"_bucket": buckets, "_count": counts, "_sum": sums},
        )

    def _process(self) -> Iterable[Family]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        unit = 1 if sys.platform == "darwin" else 1024
        for name, kind, about, value in (
            ("process_start_time_seconds", "gauge", "Start time of this process, as a Unix timestamp.", self.began_at),
            ("process_cpu_seconds_total", "counter", "CPU time of this process.", used.ru_utime + used.ru_stime),
            ("process_max_memory_bytes", "gauge", "Peak memory of this process.", used.ru_maxrss * unit),
        ):
            yield Family(f"holdfast_worker_{name}", kind, about, {(): float(value)})
