"""holdfast queues and holdfast workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli import exits, output, values
from holdfast.cli.output import Column
from holdfast.cli.session import json_option, open_client

if TYPE_CHECKING:
    from holdfast.domain.records import QueueRecord, WorkerRecord

QUEUES: list[Column[QueueRecord]] = [
    Column("QUEUE", lambda queue: queue.name),
    Column("READY", lambda queue: queue.ready, right=True),
    Column("WAITING", lambda queue: queue.waiting, right=True),
    Column("RUNNING", lambda queue: queue.running, right=True),
    Column("OLDEST READY", lambda queue: queue.oldest_ready_at),
    Column("PAUSED", lambda queue: queue.paused_at),
    Column("BY", lambda queue: queue.paused_by),
    Column("REASON", lambda queue: queue.pause_reason, wide=True),
]


@click.group()
def queues() -> None:
    """List, pause and resume queues."""


@queues.command("list")
@json_option
def list_queues(as_json: bool) -> None:
    """List the queues that have live runs or are paused."""
    from holdfast.documents.others import queue_document

    with open_client() as client:
        output.listing(QUEUES, client.queues(), queue_document, as_json)


@queues.command()
@click.argument("name")
@click.option("--reason", help="Shown by `holdfast runs why`.")
def pause(name: str, reason: str | None) -> None:
    """Pause queue NAME: no new runs start, but running ones continue."""
    with open_client() as client:
        client.pause_queue(name, reason=reason)
    output.note(f"queue {name} is paused; to resume it: holdfast queues resume {name}")


@queues.command()
@click.argument("name")
def resume(name: str) -> None:
    """Resume queue NAME: its runs start again."""
    with open_client() as client:
        client.resume_queue(name)
    output.note(f"queue {name} is not paused")


WORKERS: list[Column[WorkerRecord]] = [
    Column("WORKER", lambda worker: worker.id, is_id=True),
    Column("STATUS", lambda worker: worker.status),
    Column("NAME", lambda worker: worker.name, wide=True),
    Column("PID", lambda worker: worker.pid, right=True, spare=True),
    Column("EXECUTOR", lambda worker: worker.executor, spare=True),
    Column("QUEUES", lambda worker: ",".join(worker.queues) if worker.queues is not None else "(all)", wide=True),
    Column("RUNNING", lambda worker: f"{worker.running}/{worker.slots}", right=True),
    Column("DONE", lambda worker: worker.tasks_completed, right=True),
    Column("FAILED", lambda worker: worker.tasks_failed, right=True, spare=True),
    Column("HEARTBEAT", lambda worker: worker.heartbeat_at),
]


@click.group()
def workers() -> None:
    """List and drain workers."""


@workers.command("list")
@click.option("--all", "everyone", is_flag=True, help="Include workers that stopped within the last day.")
@json_option
def list_workers(everyone: bool, as_json: bool) -> None:
    """List the live workers."""
    from holdfast.documents.others import worker_document

    with open_client() as client:
        found = [worker for worker in client.workers() if everyone or worker.status != "stopped"]
    output.listing(WORKERS, found, worker_document, as_json)
    if not found and not as_json:
        output.note("no worker is alive; start one with: holdfast worker")


@workers.command()
@click.argument("worker_id")
def drain(worker_id: str) -> int:
    """Drain a worker. It claims no more runs, and stops when its runs have ended."""
    with open_client() as client:
        worker_id = values.worker_id(client, worker_id)
        found = client.drain_worker(worker_id)
    if not found:
        output.error(f"no live worker has the id {worker_id}; holdfast workers list shows them")
        return exits.NOT_FOUND
    output.note(f"worker {worker_id} will claim no more runs, and will stop when its runs have ended")
    return exits.OK
