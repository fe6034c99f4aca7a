"""holdfast tokens."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from holdfast.cli import output, values
from holdfast.cli.output import Column
from holdfast.cli.session import json_option, open_only_database

if TYPE_CHECKING:
    from holdfast.domain.records import TokenRecord

TOKENS: list[Column[TokenRecord]] = [
    Column("ID", lambda token: token.id),
    Column("NAME", lambda token: token.name),
    Column("TOKEN", lambda token: f"hf_…{token.hint}"),
    Column("SCOPES", lambda token: ",".join(token.scopes), wide=True),
    Column("STATUS", lambda token: token.status),
    Column("CREATED", lambda token: token.created_at),
    Column("EXPIRES", lambda token: token.expires_at),
    Column("LAST USED", lambda token: token.last_used_at),
]
DEFAULT = "runs:read,runs:write"
DAY = 86_400


@click.group()
def tokens() -> None:
    """Create and revoke tokens for the API. Tokens are managed in the database, not over HTTP."""


@tokens.command()
@click.argument("name")
@click.option(
    "--scopes",
    metavar="A,B",
    default=DEFAULT,
    show_default=True,
    help="Permissions of the token: runs:read, runs:write, operate, admin.",
)
@click.option(
    "--expires",
    metavar="DURATION",
    type=values.duration,
    help="How long the token is valid: 12h, 90d. Default: no limit.",
)
@json_option
def create(name: str, scopes: str, expires: float | None, as_json: bool) -> None:
    """Create a token and print it once; it cannot be shown again."""
    import secrets

    from holdfast.domain.ids import new_id
    from holdfast.domain.tokens import SECRET_BYTES, mint
    from holdfast.ops.tokens import create_token
    from holdfast.verbs.caller import person

    wanted = [scope.strip() for scope in scopes.split(",") if scope.strip()]
    days = expires / DAY if expires is not None else None
    text, stored = mint(secrets.token_bytes(SECRET_BYTES), new_id(), name, wanted, by=person(), days=days)
    with open_only_database() as client:
        made = client.perform(partial(create_token, stored))
    if as_json:
        output.document({"token": text} | output.plain(made))
        return
    output.data(text)
    output.note(
        f"token {made.id} ({made.name}) has the scopes {', '.join(made.scopes)}; "
        "store it now, because it will not be shown again"
    )


@tokens.command("list")
@json_option
def list_tokens(as_json: bool) -> None:
    """List all tokens, including revoked and expired ones."""
    from holdfast.ops.tokens import list_tokens as listing

    with open_only_database() as client:
        found = client.perform(listing)
    output.listing(TOKENS, found, output.plain, as_json)


@tokens.command()
@click.argument("token_id")
def revoke(token_id: str) -> None:
    """Revoke a token."""
    from holdfast.domain.errors import NotFound
    from holdfast.domain.ids import parse_id
    from holdfast.ops.tokens import revoke_token

    id_ = parse_id(token_id)
    if id_ is None:
        raise NotFound(f"{token_id!r} is not the id of a token; holdfast tokens list shows all tokens")
    with open_only_database() as client:
        gone = client.perform(partial(revoke_token, id_))
    output.note(f"token {gone.id} ({gone.name}) is revoked")
