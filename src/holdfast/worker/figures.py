"""Figures: what one worker counts of its own work, as Prometheus reads it.

They are kept only where a port asks for them. Written in the loop's thread and read in another: a number may be a
moment old, and is never wrong.
"""

from __future__ import annotations

import resource
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from time import time

from holdfast.domain.states import Status
from holdfast.domain.tasks import registry
from holdfast.domain.values import Claim

# How an attempt may end: PENDING is one that is made again, FENCED one whose result was refused.
ENDINGS = (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, Status.PENDING, "FENCED")

Labels = tuple[tuple[str, str], ...]


class Family:
    """One metric: its name, kind and meaning, and its values by labels."""

    def __init__(self, name: str, kind: str, about: str, values: Mapping[Labels, float]) -> None:
        self.name = name
        self.kind = kind
        self.about = about
        self.values = values

    def text(self) -> str:
        lines = [f"# HELP {self.name} {self.about}", f"# TYPE {self.name} {self.kind}"]
        for labels, value in sorted(self.values.items()):
            named = ",".join(f'{name}="{_escaped(told)}"' for name, told in labels)
            lines.append(f"{self.name}{{{named}}} {value!r}" if named else f"{self.name} {value!r}")
        return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class Figures:
    """What a worker started and ended, by queue and task, since its process began."""

    def __init__(self) -> None:
        self.began_at = time()
        self._started: Counter[tuple[str, str]] = Counter()
        self._ended: Counter[tuple[str, str, str]] = Counter()

    def know_tasks(self) -> None:
        """Begin at zero for every registered task, in the queue that it goes to by default."""
        for name in registry.names():
            queue = registry.get(name).queue
            self._started[queue, name] += 0
            for ending in ENDINGS:
                self._ended[queue, name, str(ending)] += 0

    def started(self, claims: Sequence[Claim]) -> None:
        self._started.update([(claim.queue, claim.task) for claim in claims])

    def ended(self, claim: Claim, status: str) -> None:
        self._ended[claim.queue, claim.task, status] += 1

    def families(self) -> Iterable[Family]:
        yield Family(
            "holdfast_worker_runs_started_total",
            "counter",
            "Attempts that this worker began.",
            {(("queue", queue), ("task", task)): float(n) for (queue, task), n in list(self._started.items())},
        )
        yield Family(
            "holdfast_worker_runs_ended_total",
            "counter",
            "Attempts of this worker that ended; PENDING is tried again, FENCED was refused.",
            {
                (("queue", queue), ("task", task), ("status", status)): float(n)
                for (queue, task, status), n in list(self._ended.items())
            },
        )
        yield from self._process()

    def _process(self) -> Iterable[Family]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        unit = 1 if sys.platform == "darwin" else 1024
        for name, kind, about, value in (
            ("process_start_time_seconds", "gauge", "When this process began, as a Unix time.", self.began_at),
            ("process_cpu_seconds_total", "counter", "Processor time of this process.", used.ru_utime + used.ru_stime),
            ("process_max_memory_bytes", "gauge", "The most memory that it has had.", used.ru_maxrss * unit),
        ):
            yield Family(f"holdfast_worker_{name}", kind, about, {(): float(value)})
