"""Celery with Redis as broker and for results: the module that its worker imports, and the client."""

from __future__ import annotations

import os

from celery import Celery

from bench.board import body
from bench.programs.asking import serve

REDIS = os.environ["BENCH_REDIS"]
app = Celery("bench", broker=f"{REDIS}/0", backend=f"{REDIS}/1")
app.conf.update(
    task_serializer="json",
    result_serializer="json",
    accept_content=["json"],
    worker_prefetch_multiplier=64,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)


@app.task(name="noop")
def noop(number: int) -> dict[str, int]:
    return body(number)


def one(first: int, count: int) -> None:
    for number in range(first, first + count):
        noop.delay(number)


if __name__ == "__main__":
    serve(one, one)
