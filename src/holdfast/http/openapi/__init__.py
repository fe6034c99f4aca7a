"""The OpenAPI 3.1 document: built from the table of routes, so that it matches what the server does."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from holdfast.documents.shapes import Part
from holdfast.domain.tasks import registry
from holdfast.domain.tokens import SCOPES
from holdfast.http.openapi.schemas import schemas
from holdfast.http.principals import NAME, SECURE_NAME
from holdfast.http.routes import ANY_SCOPE, Noun, Route
from holdfast.runtime.settings import Settings
from holdfast.verbs.openapi import header, problem

__all__ = ["build"]


ABOUT = """\
Submit runs of registered tasks, wait for them, read their results, and cancel or retry them.

Every error is a problem document (RFC 9457). A request that creates something can be repeated safely if it has an
`Idempotency-Key`. Responses have the headers `X-Request-Id` and `traceparent`.
"""


def build(nouns: Iterable[Noun], settings: Settings) -> dict[str, Any]:
    """The OpenAPI 3.1 document of these nouns."""
    nouns = list(nouns)
    paths: dict[str, Part] = {}
    for noun in nouns:
        for route in noun.routes:
            paths.setdefault(route.path, {})[route.method.lower()] = _operation(noun, route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": version("holdfast"),
            "description": ABOUT,
            "license": {"name": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": noun.name, "description": noun.about} for noun in nouns],
        "paths": paths,
        "components": {
            "schemas": schemas(settings, registry.names()),
            "responses": {"Problem": problem("any") | {"description": "Any other problem; its `type` says which."}},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": f"A token with the scope that the operation names; scopes: {', '.join(SCOPES)}. "
                    "A server on loopback requires none until the first is created.",
                },
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": NAME,
                    "description": "The cookie that `POST /session` sets, for browsers, with the token's scopes. "
                    f"Over HTTPS its name is `{SECURE_NAME}`.",
                },
            },
        },
    }


def _operation(noun: Noun, route: Route) -> Part:
    made = {"tags": [noun.name], **route.operation}
    if route.scope is None:
        return made | {"security": []}
    answers = made["responses"] | {
        "401": problem("unauthenticated", headers={"WWW-Authenticate": header("How to authenticate.")}),
        "403": problem("insufficient-scope", "unknown-host", "cross-site"),
    }
    scopes = [] if route.scope == ANY_SCOPE else [route.scope]
    return made | {"security": [{"token": scopes}, {"session": scopes}], "responses": answers}
