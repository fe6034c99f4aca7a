"""A task that only half of the workers know."""

from __future__ import annotations

from holdfast import task
from tests.chaos.tasks import PATIENT, note


@task("chaos.rare", retry=PATIENT)
def rare(n: int) -> int:
    note("began")
    note("returned")
    return n
