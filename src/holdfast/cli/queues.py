"""holdfast queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli import output
from holdfast.cli.output import Column
from holdfast.cli.session import json_option, open_client

if TYPE_CHECKING:
    from holdfast.domain.records import QueueRecord

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
