"""A worker controlled by the test: it claims and ends runs exactly when the test calls it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from random import random
from typing import Any

import orjson
import psycopg

from holdfast import ops
from holdfast.domain.ids import new_id
from holdfast.domain.states import AttemptStatus, Status
from holdfast.domain.values import Claim, Settlement, StoredResult, WorkerInfo
from holdfast.drivers.psycopg import transact
from holdfast.sql import leases, logs, ready, workers
from holdfast.sql.logs import LogLine
from holdfast.sql.statement import Op


class ManualWorker:
    """Does what a worker does, one step at a time."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        self.id = new_id()
        info = WorkerInfo(self.id, "test-host", 1, "hands", "inline", "0", 1, timedelta(minutes=5))
        self._run(lambda: iter(workers.register(info)))

    def claim(self, run_id: str) -> Claim:
        self._run(lambda: ops.promote(1000))
        tasks = [task for _, task in self._run(lambda: iter(ready.by_task()))]
        claimed = self._run(lambda: ops.claim_by_id(self.id, run_id, tasks, random()))
        assert claimed is not None, f"run {run_id} cannot be claimed"
        return claimed

    def succeed(self, claim: Claim, result: Any = None, stored: StoredResult | None = None) -> None:
        text = None if stored else orjson.dumps(result).decode()
        self._end(claim, AttemptStatus.SUCCEEDED, Status.SUCCEEDED, result=text, stored=stored)

    def fail(self, claim: Claim, message: str = "it broke", outcome: Status | None = Status.FAILED) -> None:
        error = {"class": "ValueError", "message": message, "traceback": "Traceback: ..."}
        self._end(claim, AttemptStatus.FAILED, outcome, error=error)

    def stop(self, claim: Claim) -> None:
        self._end(claim, AttemptStatus.CANCELLED, Status.CANCELLED)

    def progress(self, claim: Claim, done: int, total: int) -> None:
        report = orjson.dumps({"done": done, "total": total}).decode()
        self._run(lambda: iter(leases.progress(self.id, [(claim.ref, report)])))

    def log(self, claim: Claim, *messages: str) -> None:
        lines = [LogLine(claim.ref, "info", message, 0.0) for message in messages]
        self._run(lambda: iter(logs.add(self.id, lines)))

    def run(self, run_id: str, result: Any = None) -> None:
        self.succeed(self.claim(run_id), result)

    def close(self) -> None:
        self.connection.close()

    def _end(self, claim: Claim, status: AttemptStatus, outcome: Status | None, **more: Any) -> None:
        settlement = Settlement(claim.ref, status, outcome, task=claim.task, elapsed=0.01, lag=claim.lag, **more)
        self._run(lambda: ops.finish(self.id, [settlement]))

    def _run(self, make_op: Callable[[], Op[Any]]) -> Any:
        return transact(self.connection, make_op)
