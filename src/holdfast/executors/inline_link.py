"""How a run inside the worker's own process reaches its worker: across threads, to the worker's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from holdfast.domain.context import OwnTransaction
from holdfast.domain.execution import ExecutorContext, transactions_of
from holdfast.domain.values import AttemptRef, StoredResult

T = TypeVar("T")


class InlineLink:
    def __init__(
        self,
        place: ExecutorContext,
        loop: asyncio.AbstractEventLoop,
        worker_id: str,
        extend: Callable[[AttemptRef, float], None],
    ) -> None:
        self._place = place
        self._loop = loop
        self.worker_id = worker_id
        self._extend = extend

    @property
    def database_url(self) -> str:
        return self._place.database_url

    def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(question, self._loop).result()

    def progress(self, ref: AttemptRef, report: str) -> None:
        self._loop.call_soon_threadsafe(self._place.attempt_services.note_progress, ref, report)

    def log(self, ref: AttemptRef, level: str, message: str) -> None:
        self._loop.call_soon_threadsafe(self._place.attempt_services.note_log, ref, level, message)

    def extend(self, ref: AttemptRef, seconds: float) -> None:
        self._extend(ref, seconds)

    def find_step(self, ref: AttemptRef, name: str) -> str | None:
        return self._ask(self._place.attempt_services.find_step(ref, name))

    def record_step(self, ref: AttemptRef, name: str, result: str) -> None:
        self._ask(self._place.attempt_services.record_step(ref, name, result))

    def submit(self, ref: AttemptRef, task: str, parameters: Any, options: Mapping[str, Any]) -> str:
        return self._ask(self._place.attempt_services.submit(ref, task, parameters, options))

    def stored_children(self, ref: AttemptRef) -> dict[str, str]:
        return self._ask(self._place.attempt_services.stored_children(ref))

    def transaction(self, ref: AttemptRef) -> OwnTransaction:
        return transactions_of(self._place.transactions)(self._place.database_url, self.worker_id)

    def store(self, ref: AttemptRef, text: bytes) -> StoredResult:
        return self._place.store(ref.run_id, ref.number, text)
