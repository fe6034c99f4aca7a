"""The only kind of message that is accepted from Redis.

RQ imports and calls whatever function a message names, with any arguments, and a message may also name callbacks and
URLs: anyone who can write to Redis could run anything in its workers. With this class as `--job-class` a worker accepts
only messages that call `execute_run` with the id of a run, in JSON, and ignores all others.
"""

from __future__ import annotations

import logging
from typing import Any

from rq.exceptions import NoSuchJobError
from rq.job import Job
from rq.serializers import JSONSerializer

# Imported here, before RQ forks for each message, so that the work-horses need not import it again.
import holdfast.rq.execution  # noqa: F401
from holdfast.domain.ids import parse_id
from holdfast.doorbells.rq import FUNCTION

log = logging.getLogger("holdfast.rq")

# Fields that are empty in our messages. In other messages, they could name code to run.
_UNUSED = (
    b"success_callback_name",
    b"failure_callback_name",
    b"stopped_callback_name",
    b"webhooks",
    b"dependency_ids",
    b"dependency_id",
    b"repeats_left",
    b"retries_left",
)


class RunJob(Job):
    """A job that can only be a call of `execute_run`. It reads JSON, whatever serializer the worker uses."""

    def __init__(self, id: str | None = None, connection: Any = None, serializer: Any = None) -> None:  # noqa: A002
        super().__init__(id, connection, JSONSerializer)

    def restore(self, raw_data: Any) -> Any:
        try:
            used = [name for name in _UNUSED if raw_data.get(name) not in (None, b"", b"[]")]
            super().restore(raw_data)
            refusal = f"it has {used[0].decode()}" if used else self._refusal()
        except Exception as error:  # noqa: BLE001 - no content of Redis may end the worker
            refusal = f"it cannot be read ({type(error).__name__})"
        if refusal:
            log.warning("a message in Redis was refused: %s; job %r", refusal, str(self.id)[:100])
            raise NoSuchJobError(f"not a message from Holdfast: {refusal}")

    def _refusal(self) -> str | None:
        if self.func_name != FUNCTION or self.instance is not None:
            return f"it does not call {FUNCTION}"
        if self.kwargs or len(self.args) != 1 or parse_id(self.args[0]) is None:
            return "its argument is not the id of a run"
        return None
