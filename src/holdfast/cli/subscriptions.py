"""holdfast subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

import click

from holdfast.cli import output, values
from holdfast.cli.output import Column
from holdfast.cli.session import json_option, open_only_database
from holdfast.domain.times import written

if TYPE_CHECKING:
    from holdfast.domain.records import DeliveryRecord
    from holdfast.sql.subscriptions import SubscriptionState

SUBSCRIPTIONS: list[Column[SubscriptionState]] = [
    Column("NAME", lambda one: one.subscription.name),
    Column("KIND", lambda one: one.subscription.kind),
    Column("TARGET", lambda one: one.subscription.target),
    Column("PENDING", lambda one: one.pending, right=True),
    Column("OLDEST", lambda one: one.oldest_pending_at),
    Column("PAUSED", lambda one: one.subscription.paused_at),
    Column("REASON", lambda one: one.subscription.pause_reason, wide=True),
]

DELIVERIES: list[Column[DeliveryRecord]] = [
    Column("ID", lambda one: one.id, right=True),
    Column("SUBSCRIPTION", lambda one: one.subscription),
    Column("RUN", lambda one: one.run_id),
    Column("STATUS", lambda one: one.status),
    Column("TRIES", lambda one: one.attempts, right=True),
    Column("CODE", lambda one: one.response_code, right=True),
    Column("TRIED", lambda one: one.tried_at),
    Column("DUE", lambda one: one.due_at),
    Column("ERROR", lambda one: one.error, wide=True),
]


@click.group()
def subscriptions() -> None:
    """Send events about ended runs to webhooks and Redis streams."""


@subscriptions.command("list")
@json_option
def list_subscriptions(as_json: bool) -> None:
    """List the subscriptions. Secrets are not shown."""
    with open_only_database() as client:
        output.listing(SUBSCRIPTIONS, client.subscriptions(), _document, as_json)


def _document(state: SubscriptionState) -> dict[str, Any]:
    shown = output.plain(state.subscription) | {
        "pending": state.pending,
        "oldest_pending_at": written(state.oldest_pending_at),
    }
    del shown["secret"]
    return shown


@subscriptions.command()
@click.argument("name")
@click.option("--webhook", metavar="URL", help="Post events to this URL, signed according to Standard Webhooks.")
@click.option("--stream", metavar="KEY", help="Add events to this stream, on the Redis server at HOLDFAST_REDIS_URL.")
@click.option(
    "--secret-file", type=values.InputFile(), help="File with the webhook's whsec_... secret. Default: generate one."
)
@click.option("--model", "models", multiple=True, help="Only runs of this task. May be repeated.")
@click.option("--queue", "queues", multiple=True, help="Only runs of this queue. May be repeated.")
@click.option("--status", "statuses", multiple=True, help="Only runs that ended with this status. May be repeated.")
def add(name: str, secret_file: TextIO | None, **options: Any) -> None:
    """Add subscription NAME. A secret generated for a webhook is printed once and cannot be shown again."""
    secret = secret_file.read().strip() if secret_file else None
    with open_only_database() as client:
        made = client.add_subscription(name, secret=secret, **options)
    output.note(f"subscription {name}: {made.kind} {made.target}")
    if made.secret and secret is None:
        output.data(made.secret)


@subscriptions.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove subscription NAME; undelivered events are dropped."""
    with open_only_database() as client:
        client.remove_subscription(name)
    output.note(f"subscription {name} is removed")


@subscriptions.command()
@click.argument("name")
@click.option("--reason", help="Shown in the list.")
def pause(name: str, reason: str | None) -> None:
    """Pause subscription NAME; its events are kept."""
    with open_only_database() as client:
        client.pause_subscription(name, reason=reason)
    output.note(f"subscription {name} is paused; to resume it: holdfast subscriptions resume {name}")


@subscriptions.command()
@click.argument("name")
def resume(name: str) -> None:
    """Resume subscription NAME where it stopped."""
    with open_only_database() as client:
        client.resume_subscription(name)
    output.note(f"subscription {name} is not paused")


@subscriptions.command()
@click.argument("name")
def rotate(name: str) -> None:
    """Create and print a new secret. Events are also signed with the old one until the next rotation."""
    with open_only_database() as client:
        secret = client.rotate_secret(name)
    output.data(secret)


@subscriptions.command()
@click.argument("name", required=False)
@click.option(
    "--status",
    type=click.Choice(["PENDING", "DELIVERED", "FAILED"], case_sensitive=False),
    help="Only deliveries with this status.",
)
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number of items.")
@json_option
def deliveries(name: str | None, status: str | None, limit: int, as_json: bool) -> None:
    """Show the delivery log, newest first."""
    with open_only_database() as client:
        found = client.deliveries(name, status=status.upper() if status else None, limit=limit)
    output.listing(DELIVERIES, found, output.plain, as_json)


@subscriptions.command()
@click.argument("delivery", type=int)
def redeliver(delivery: int) -> None:
    """Send delivery number DELIVERY again."""
    with open_only_database() as client:
        client.redeliver(delivery)
    output.note(f"delivery {delivery} is due now")
