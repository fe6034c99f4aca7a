"""Sessions: a browser exchanges a token for a cookie, and gives it back."""

from __future__ import annotations

from holdfast.documents.shapes import TEXT, record
from holdfast.http.answers import Answer, answer, nothing
from holdfast.http.call import Call
from holdfast.http.principals import bearer_token, cookie
from holdfast.http.routes import ANY_SCOPE, Noun, route
from holdfast.verbs.openapi import header, says

COOKIE = {"Set-Cookie": header("The session cookie: HttpOnly, SameSite=Lax, and Secure over HTTPS.")}


PRINCIPAL = record("Who is making the request.", {"name": TEXT, "scopes": {"type": "array", "items": TEXT}})


@route(
    "POST /session",
    ANY_SCOPE,
    "openSession",
    "Begin a session",
    "Send the token in the Authorization header. The response sets a cookie that has the token's scopes. With the "
    "cookie, requests that change something need an `Origin` header, which browsers send.",
    answers={204: says("The cookie is set.", headers=COOKIE)},
)
def open_session(call: Call) -> Answer:
    token = bearer_token(call.header("HTTP_AUTHORIZATION"))
    return nothing(204, {"Set-Cookie": cookie(call.environ, token)})


@route(
    "GET /session",
    ANY_SCOPE,
    "getSession",
    "Show who is making this request",
    answers={200: says("The name and the scopes of the token.", PRINCIPAL)},
)
def show(call: Call) -> Answer:
    return answer({"name": call.principal.name, "scopes": sorted(call.principal.scopes)})


@route(
    "DELETE /session",
    None,
    "closeSession",
    "End the session",
    answers={204: says("The cookie is removed.", headers=COOKIE)},
)
def close_session(call: Call) -> Answer:
    return nothing(204, {"Set-Cookie": cookie(call.environ, None)})


NOUN = Noun("session", "Browser sessions: a cookie that represents a token.", [open_session, show, close_session])
