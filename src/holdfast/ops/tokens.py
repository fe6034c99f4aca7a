"""Tokens: create, list, revoke and authenticate them."""

from __future__ import annotations

from hmac import compare_digest

from holdfast.domain.errors import NotFound
from holdfast.domain.records import TokenRecord
from holdfast.domain.tokens import NewToken
from holdfast.sql import tokens
from holdfast.sql.statement import Op, as_operation
from holdfast.sql.tokens import LiveToken

list_tokens = as_operation(tokens.listing)
count_usable_tokens = as_operation(tokens.usable)


def create_token(token: NewToken) -> Op[TokenRecord]:
    """Store a token. The caller shows its secret, once."""
    yield from tokens.create(token)
    made = yield from tokens.read(token.id)
    if made is None:
        raise NotFound(f"token {token.id} was deleted immediately after it was created; create another one")
    return made


def authenticate(digest: bytes) -> Op[LiveToken | None]:
    """Return the token with this digest if it is valid, and update its time of last use, at most once a minute."""
    found = yield from tokens.find(digest)
    if found is None or not compare_digest(found.digest, digest):
        return None
    if found.stale:
        yield from tokens.use(found.id)
    return found


def revoke_token(token_id: str) -> Op[TokenRecord]:
    """Revoke a token. Revoking it twice has no effect."""
    yield from tokens.revoke(token_id)
    found = yield from tokens.read(token_id)
    if found is None:
        raise NotFound(f"no token has the id {token_id}")
    return found
