"""The order of tests: each process of a run begins with the longest tests.

pytest-xdist gives each process an equal part of the list, and a process that has finished its part takes over the end
of another one. A long test at the end of a part would leave the other processes idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Protocol, TypeVar

# Folders and files whose tests take about ten seconds or more, mostly waiting for processes and leases, longest
# first. Tests of a folder or file stay in one process, because they share fixtures.
LONGEST = (
    "tests/upgrade",
    "tests/integration/test_demo.py",
    "tests/chaos/test_chaos.py",
    "tests/integration/test_up.py",
    "tests/integration/test_rq.py",
    "tests/integration/test_worker_faults.py",
    "tests/integration/test_operations.py",
    "tests/unit/test_bench.py",
    "tests/http/test_operating.py",
    "tests/http/test_outage.py",
    "tests/integration/test_recovery.py",
    "tests/integration/test_recovery_database.py",
    "tests/integration/test_jobs_datasets.py",
    "tests/integration/test_migrate.py",
    "tests/integration/test_readme.py",
    "tests/integration/test_jobs_source_samples.py",
)


class Item(Protocol):
    """The part of a collected test that the order needs."""

    @property
    def nodeid(self) -> str: ...


T = TypeVar("T", bound=Item)


def ordered(items: Sequence[T], processes: int) -> list[T]:
    """Return the tests so that each process begins with its share of the long ones."""
    groups = [[item for item in items if item.nodeid.startswith(name)] for name in LONGEST]
    long = {item.nodeid for group in groups for item in group}
    others = iter([item for item in items if item.nodeid not in long])
    parts: list[list[T]] = [[] for _ in range(processes)]
    for number, group in enumerate(group for group in groups if group):
        parts[number % processes] += group
    left = len(items)
    for number, part in enumerate(parts):
        part.extend(islice(others, max(0, left // (processes - number) - len(part))))
        left -= len(part)
    return [item for part in parts for item in part] + list(others)
