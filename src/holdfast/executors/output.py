"""The output of runs as lines of the worker's log: which run a line belongs to, and the streams of a child process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.domain.context import RunContext, find_run
from holdfast.observe.capture import About, Output, adopt_logging, capture
from holdfast.observe.lines import Lines, LogFormat, to_descriptor


def about(context: RunContext) -> dict[str, Any]:
    return {
        "run_id": context.id,
        "payload_hash": context.payload_hash,
        "worker_id": context.link.worker_id,
        "status": "RUNNING",
        "attempt_count": context.attempt,
        "task": context.task,
    }


def about_current_run(otherwise: Callable[[], RunContext | None]) -> About:
    """Return the run that the calling code belongs to; in threads without that context, `otherwise` provides it."""

    def find() -> Mapping[str, Any] | None:
        context = find_run() or otherwise()
        return about(context) if context is not None else None

    return find


class ChildOutput:
    """Writes the lines of a child process to a descriptor of the worker's log."""

    def __init__(self, form: LogFormat, descriptor: int) -> None:
        self.current: Callable[[], RunContext | None] = lambda: None
        lines = Lines(form, to_descriptor(descriptor))
        self._output = Output(lines, about_current_run(self._find))
        capture(self._output)

    def _find(self) -> RunContext | None:
        return self.current()

    def modules_loaded(self) -> None:
        adopt_logging(self._output)
