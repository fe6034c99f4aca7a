"""How a run in a child process reaches its worker: notes and questions over the channel."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Mapping
from time import monotonic
from typing import Any

import orjson

from holdfast.domain import errors
from holdfast.domain.canonical import canonical_text
from holdfast.domain.context import OwnTransaction
from holdfast.domain.errors import HoldfastError
from holdfast.domain.execution import transactions_of
from holdfast.domain.values import AttemptRef, StoredResult
from holdfast.executors.channel import Channel, sent_options
from holdfast.executors.performing import clean
from holdfast.executors.shared_state import SharedState

MESSAGE_LENGTH = 16_000

# Errors that the worker may respond with, and that consist of a message only.
ERRORS = {
    kind.__name__: kind
    for kind in (
        errors.BadInput,
        errors.BadParameters,
        errors.ChildDiffers,
        errors.ConfigurationError,
        errors.JobEnded,
        errors.LeaseLost,
        errors.NotCanonical,
    )
}


class ChildLink:
    """Gathers messages until they are flushed; a question flushes them and waits for the response."""

    def __init__(self, channel: Channel, state: SharedState, transactions: str, url: str) -> None:
        self.worker_id = ""
        self.flushed_at = 0.0
        self._channel = channel
        self._state = state
        self._transactions = transactions
        self.database_url = url
        self._messages: deque[Any] = deque()
        self._lock = threading.Lock()
        self._questions = itertools.count()
        self._responses: dict[int, tuple[threading.Event, list[Any]]] = {}

    def put(self, message: list[Any]) -> None:
        self._messages.append(message)

    def put_result(self, message: list[Any]) -> None:
        """Like `put`; if this process dies before it flushes, the worker finds the result in the shared state."""
        text = orjson.dumps(message)
        with self._lock:
            kept = self._state.keep(text)
            self._messages.append(orjson.Fragment(text))
        if not kept:
            self.flush()

    def flush(self) -> None:
        with self._lock:
            messages = [self._messages.popleft() for _ in range(len(self._messages))]
            if messages:
                self._channel.send(messages)
            self._state.forget()
        self.flushed_at = monotonic()

    def _send(self, kind: str, ref: AttemptRef, *rest: Any) -> None:
        self.put([kind, tuple(ref), *rest])
        self.flush()

    def _ask(self, method: str, ref: AttemptRef, *args: Any) -> Any:
        number = next(self._questions)
        arrived = threading.Event()
        response: list[Any] = []
        self._responses[number] = (arrived, response)
        self._send("ask", ref, number, method, *args)
        arrived.wait()
        kind, *rest = response
        if kind == "answer":
            return rest[0]
        name, message = rest
        raise ERRORS.get(name, HoldfastError)(message)

    def respond(self, kind: str, number: int, content: list[Any]) -> None:
        """Hand a response to the thread that waits for it. Called by the thread that receives from the worker."""
        waiting = self._responses.pop(number, None)
        if waiting is not None:
            arrived, response = waiting
            response.extend([kind, *content])
            arrived.set()

    def progress(self, ref: AttemptRef, report: str) -> None:
        self._send("progress", ref, report)

    def log(self, ref: AttemptRef, level: str, message: str) -> None:
        self._send("log", ref, level, clean(message, MESSAGE_LENGTH))

    def extend(self, ref: AttemptRef, seconds: float) -> None:
        self._send("extend", ref, seconds)

    def find_step(self, ref: AttemptRef, name: str) -> str | None:
        found: str | None = self._ask("find_step", ref, clean(name, 300))
        return found

    def record_step(self, ref: AttemptRef, name: str, result: str) -> None:
        self._ask("record_step", ref, clean(name, 300), result)

    def submit(self, ref: AttemptRef, task: str, parameters: Any, options: Mapping[str, Any]) -> str:
        text = orjson.Fragment(canonical_text(parameters))
        return str(self._ask("submit", ref, task, text, sent_options(options)))

    def stored_children(self, ref: AttemptRef) -> dict[str, str]:
        found: dict[str, str] = self._ask("stored_children", ref)
        return found

    def transaction(self, ref: AttemptRef) -> OwnTransaction:
        return transactions_of(self._transactions)(self.database_url, self.worker_id)

    def store(self, ref: AttemptRef, text: bytes) -> StoredResult:
        return StoredResult(*self._ask("store", ref, text.decode()))
