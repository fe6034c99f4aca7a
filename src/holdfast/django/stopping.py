"""`--max-tasks`: stop the worker after a number of tasks, so that its supervisor restarts it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.django.announcing import EVENTS
from holdfast.observe import subscribe

COUNTED = tuple(event for event in EVENTS if event != "run.lost")


@contextmanager
def stop_after(most: int | None) -> Iterator[None]:
    """Stop this process as SIGTERM does once `most` attempts have ended. Runs claimed by then are still executed."""
    left = most

    def count(event: str, fields: dict[str, Any]) -> None:
        nonlocal left
        if left is not None:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGTERM)

    if most is None:
        yield
        return
    unsubscribe = subscribe(count, COUNTED.__contains__)
    try:
        yield
    finally:
        unsubscribe()
