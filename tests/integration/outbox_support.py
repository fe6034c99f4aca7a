"""Runs that end without a worker, a publisher driven by the test, and a webhook receiver with programmed responses."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import psycopg

from holdfast import ops
from holdfast.domain.canonical import canonicalize
from holdfast.domain.ids import new_id
from holdfast.domain.states import AttemptStatus, Status
from holdfast.domain.values import NewRun, Position, Settlement, WorkerInfo
from holdfast.drivers import psycopg as driver
from holdfast.drivers import psycopg_async
from holdfast.outbox.publisher import Publisher, Transact
from holdfast.sql import ready, workers
from holdfast.sql.subscriptions import NewSubscription


class OutboxStage:
    """Creates and ends runs, one statement after the other."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.worker = new_id()
        info = WorkerInfo(self.worker, "host", 1, "test", "inline", "0", 100, timedelta(hours=1))
        self.do(workers.register(info))

    def do(self, op: Any) -> Any:
        return driver.run(self.connection, iter(op) if not hasattr(op, "send") else op)

    def submit(self, *, task: str = "mock", queue: str = "default", **options: Any) -> str:
        text, digest = canonicalize({})
        new = NewRun(id=new_id(), task=task, parameters=text, payload_hash=digest, queue=queue, **options)
        return str(self.do(ops.submit(new)).run.id)

    def tasks(self) -> list[str]:
        return [task for _, task in self.do(ready.by_task())]

    def end(self, run_id: str, outcome: Status = Status.SUCCEEDED) -> None:
        claim = self.do(ops.claim_by_id(self.worker, run_id, self.tasks(), 0.5))
        assert claim is not None
        failed = {"class": "ValueError", "message": "no", "traceback": None}
        ended = Settlement(
            claim.ref,
            AttemptStatus(outcome),
            outcome,
            task=claim.task,
            result="1" if outcome is Status.SUCCEEDED else None,
            error=failed if outcome is Status.FAILED else None,
        )
        assert self.do(ops.finish(self.worker, [ended]))[0].accepted

    def complete(self, amount: int, **options: Any) -> list[str]:
        """Create runs that succeed, in this order."""
        made = [self.submit(**options) for _ in range(amount)]
        for run_id in made:
            self.end(run_id)
        return made

    def claim_next(self) -> Any:
        return self.do(ops.claim(self.worker, [Position("default")], self.tasks(), 1))

    def subscribe(self, name: str, kind: str, target: str, secret: str | None = None, **wanted: list[str]) -> str:
        made = self.do(ops.outbox.add_subscription(NewSubscription(new_id(), name, kind, target, secret, wanted)))
        return str(made.id)

    def all(self, query: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(query).fetchall()  # type: ignore[call-overload,no-any-return]


@asynccontextmanager
async def transacting(url: str) -> AsyncIterator[Transact]:
    """Yield the function with which a publisher runs its operations."""
    import asyncio

    lock = asyncio.Lock()
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)

    async def transact(make_op: Callable[[], Any], /) -> Any:
        async with lock:
            return await psycopg_async.transact(connection, make_op)

    try:
        yield transact
    finally:
        await connection.close()


async def publish(url: str, publisher: Publisher) -> int:
    async with transacting(url) as transact:
        try:
            return await publisher.publish(transact)
        finally:
            await publisher.close()


class Request(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def run_id(self) -> str:
        return str(json.loads(self.body)["data"]["run_id"])


class Receiver:
    """Records every request; `answers` lists the status codes and headers to return before the default of 200."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.hang = threading.Event()
        self.hang.set()
        self.url = ""


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.requests.append(Request(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            receiver.hang.wait(30)
            code, headers = receiver.answers.pop(0) if receiver.answers else (200, {})
            try:
                self.send_response(code)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", "0")
                self.end_headers()
            except OSError:
                return

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_port}/hook"
    try:
        yield receiver
    finally:
        receiver.hang.set()
        server.shutdown()
        thread.join()
        server.server_close()
