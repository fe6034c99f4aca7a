"""Tokens of the HTTP API, known by their digest only."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.domain.records import TokenRecord
from holdfast.domain.tokens import NewToken
from holdfast.sql.statement import Row, Statement, count, each, first, nothing, text_array

# How long a token's last use may go unrecorded: a busy token then costs one write a minute.
USE_SECONDS = 60


class LiveToken(NamedTuple):
    """A token that may be used now. `stale` means that its last use is due to be recorded."""

    id: str
    name: str
    digest: bytes
    scopes: frozenset[str]
    stale: bool


_COLUMNS = """
    select id::text, name, hint, scopes,
           case when revoked_at is not null then 'revoked'
                when expires_at <= holdfast.now() then 'expired' else 'active' end,
           created_at, created_by, expires_at, revoked_at, last_used_at
    from holdfast.tokens
"""


def _token(row: Row) -> TokenRecord:
    return TokenRecord(row[0], row[1], row[2], tuple(row[3]), *row[4:])


def _live(row: Row) -> LiveToken:
    return LiveToken(row[0], row[1], bytes(row[2]), frozenset(row[3]), row[4])


def create(token: NewToken) -> Statement[None]:
    return Statement(
        """
        insert into holdfast.tokens (id, name, digest, hint, scopes, created_at, created_by, expires_at)
        values (%(id)s::uuid, %(name)s, decode(%(digest)s, 'hex'), %(hint)s, %(scopes)s::text[], holdfast.now(),
                %(created_by)s, holdfast.now() + %(days)s::float8 * interval '1 day')
        on conflict (id) do nothing
        """,
        {
            "id": token.id,
            "name": token.name,
            "digest": token.digest.hex(),
            "hint": token.hint,
            "scopes": text_array(token.scopes),
            "created_by": token.created_by,
            "days": token.days,
        },
        nothing,
        together=True,
    )


def read(token_id: str) -> Statement[TokenRecord | None]:
    return Statement(_COLUMNS + "where id = %(id)s::uuid", {"id": token_id}, first(_token))


def find(digest: bytes) -> Statement[LiveToken | None]:
    """The token with this digest, if it may be used now."""
    return Statement(
        """
        select id::text, name, digest, scopes,
               coalesce(last_used_at < holdfast.now() - %(seconds)s * interval '1 second', true)
        from holdfast.tokens
        where digest = decode(%(digest)s, 'hex') and revoked_at is null
          and coalesce(expires_at > holdfast.now(), true)
        """,
        {"digest": digest.hex(), "seconds": USE_SECONDS},
        first(_live),
    )


def use(token_id: str) -> Statement[None]:
    """Record that the token was used."""
    return Statement(
        """
        update holdfast.tokens set last_used_at = holdfast.now()
        where id = %(id)s::uuid
          and coalesce(last_used_at < holdfast.now() - %(seconds)s * interval '1 second', true)
        """,
        {"id": token_id, "seconds": USE_SECONDS},
        nothing,
    )


def listing() -> Statement[list[TokenRecord]]:
    """Every token, newest first; those that were revoked included."""
    return Statement(_COLUMNS + "order by created_at desc, id desc", {}, each(_token))


def revoke(token_id: str) -> Statement[int]:
    """Let a token be used no more; counts it if it could be used until now."""
    return Statement(
        """
        with gone as (
            update holdfast.tokens set revoked_at = holdfast.now()
            where id = %(id)s::uuid and revoked_at is null returning id
        )
        select count(*) from gone
        """,
        {"id": token_id},
        count,
    )


def usable() -> Statement[int]:
    """How many tokens may be used now."""
    return Statement(
        """
        select count(*) from holdfast.tokens
        where revoked_at is null and coalesce(expires_at > holdfast.now(), true)
        """,
        {},
        count,
    )
