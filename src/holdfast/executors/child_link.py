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
from holdfast.domain.canonical import canonicalize
from holdfast.domain.context import OwnTransaction
from holdfast.domain.errors import HoldfastError
from holdfast.domain.execution import transactions_of
from holdfast.domain.values import AttemptRef, StoredResult
from holdfast.executors.channel import Channel, sent_options
from holdfast.executors.performing import clean
from holdfast.executors.shared_state import SharedState

MESSAGE_LENGTH = 16_000

# Errors that a question may be answered with, and that are made of a message alone.
ANSWERS = {
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
    """Gathers messages until they are flushed; a question flushes them and waits for its answer."""

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
        self._answers: dict[int, tuple[threading.Event, list[Any]]] = {}

    def put(self, message: list[Any]) -> None:
        self._messages.append(message)

    def put_ending(self, message: list[Any]) -> None:
        """Like `put`; and if this process dies before it flushes, its worker finds the ending all the same."""
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

    def _tell(self, kind: str, ref: AttemptRef, *rest: Any) -> None:
        self.put([kind, tuple(ref), *rest])
        self.flush()

    def _ask(self, method: str, ref: AttemptRef, *args: Any) -> Any:
        number = next(self._questions)
        answered = threading.Event()
        said: list[Any] = []
        self._answers[number] = (answered, said)
        self._tell("ask", ref, number, method, *args)
        answered.wait()
        kind, *rest = said
        if kind == "answer":
            return rest[0]
        name, message = rest
        raise ANSWERS.get(name, HoldfastError)(message)

    def answered(self, kind: str, number: int, said: list[Any]) -> None:
        """Called by the thread that hears the worker."""
        waiting = self._answers.pop(number, None)
        if waiting is not None:
            answered, place = waiting
            place.extend([kind, *said])
            answered.set()

    def progress(self, ref: AttemptRef, report: str) -> None:
        self._tell("progress", ref, report)

    def log(self, ref: AttemptRef, level: str, message: str) -> None:
        self._tell("log", ref, level, clean(message, MESSAGE_LENGTH))

    def extend(self, ref: AttemptRef, seconds: float) -> None:
        self._tell("extend", ref, seconds)

    def find_step(self, ref: AttemptRef, name: str) -> str | None:
        found: str | None = self._ask("find_step", ref, clean(name, 300))
        return found

    def record_step(self, ref: AttemptRef, name: str, result: str) -> None:
        self._ask("record_step", ref, clean(name, 300), result)

    def submit(self, ref: AttemptRef, task: str, parameters: Any, options: Mapping[str, Any]) -> str:
        text = orjson.Fragment(canonicalize(parameters)[0])
        return str(self._ask("submit", ref, task, text, sent_options(options)))

    def stored_children(self, ref: AttemptRef) -> dict[str, str]:
        found: dict[str, str] = self._ask("stored_children", ref)
        return found

    def transaction(self, ref: AttemptRef) -> OwnTransaction:
        return transactions_of(self._transactions)(self.database_url, self.worker_id)

    def store(self, ref: AttemptRef, text: bytes) -> StoredResult:
        return StoredResult(*self._ask("store", ref, text.decode()))
