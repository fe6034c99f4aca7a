"""Tokens of the HTTP API; only their digests are stored."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.domain.records import TokenRecord
from holdfast.domain.tokens import NewToken
from holdfast.sql.statement import Row, Statement, count, each, first, nothing, text_array

# The time of last use is updated at most this often, so that a busy token costs one write a minute.
USE_SECONDS = 60


class LiveToken(NamedTuple):
    """A valid token. `stale` if its time of last use should be updated."""

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


def create(token: NewToken) -> Statement[None]:
    return Statement(
        """
        insert into holdfast.tokens (id, name, digest, hint, scopes, created_at, created_by, expires_at)
        values (%(id)s::uuid, %(name)s, decode(%(digest)s, 'hex'), %(hint)s, %(scopes)s::text[], holdfast.now(),
                %(created_by)s, holdfast.now() + %(days)s::float8 * interval '1 day')
        on conflict (id) do nothing
        """,
        token._asdict() | {"digest": token.digest.hex(), "scopes": text_array(token.scopes)},
        nothing,
        together=True,
    )


def read(token_id: str) -> Statement[TokenRecord | None]:
    return Statement(_COLUMNS + "where id = %(id)s::uuid", {"id": token_id}, first(_token))


def find(digest: bytes) -> Statement[LiveToken | None]:
    """Return the token with this digest, if it is valid."""
    return Statement(
        """
        select id::text, name, digest, scopes,
               coalesce(last_used_at < holdfast.now() - %(seconds)s * interval '1 second', true)
        from holdfast.tokens
        where digest = decode(%(digest)s, 'hex') and revoked_at is null
          and coalesce(expires_at > holdfast.now(), true)
        """,
        {"digest": digest.hex(), "seconds": USE_SECONDS},
        first(lambda row: LiveToken(row[0], row[1], bytes(row[2]), frozenset(row[3]), row[4])),
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
    """Return every token, newest first, including revoked ones."""
    return Statement(_COLUMNS + "order by created_at desc, id desc", {}, each(_token))


def revoke(token_id: str) -> Statement[int]:
    """Revoke a token. Return 0 if it was already revoked or does not exist."""
    return Statement(
        """
        update holdfast.tokens set revoked_at = holdfast.now()
        where id = %(id)s::uuid and revoked_at is null returning id
        """,
        {"id": token_id},
        len,
    )


def usable() -> Statement[int]:
    """Return the number of valid tokens."""
    return Statement(
        """
        select count(*) from holdfast.tokens
        where revoked_at is null and coalesce(expires_at > holdfast.now(), true)
        """,
        {},
        count,
    )
