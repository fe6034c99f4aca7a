"""Sessions: a browser exchanges a token for a cookie, and gives it back."""

from __future__ import annotations

from holdfast.documents.shapes import TEXT, record
from holdfast.http import reading, session
from holdfast.http.answers import Answer, answer, nothing
from holdfast.http.call import Call
from holdfast.http.principals import bearer_token
from holdfast.http.routes import ANY_SCOPE, Noun, route
from holdfast.verbs.openapi import header, says

COOKIE = {"Set-Cookie": header("The session cookie: HttpOnly, SameSite=Lax, and Secure over HTTPS.")}


def open_session(call: Call) -> Answer:
    reading.query(call)
    token = bearer_token(call.header("HTTP_AUTHORIZATION"))
    return nothing(204, {"Set-Cookie": session.cookie(call.environ, token)})


def show(call: Call) -> Answer:
    reading.query(call)
    return answer({"name": call.principal.name, "scopes": sorted(call.principal.scopes)})


def close_session(call: Call) -> Answer:
    reading.query(call)
    return nothing(204, {"Set-Cookie": session.cookie(call.environ, None)})


PRINCIPAL = record("Who is making the request.", {"name": TEXT, "scopes": {"type": "array", "items": TEXT}})

NOUN = Noun(
    "session",
    "Browser sessions: a cookie that represents a token.",
    [
        route(
            "POST /session",
            open_session,
            ANY_SCOPE,
            "openSession",
            "Begin a session",
            "Send the token in the Authorization header. The response sets a cookie that has the token's scopes. "
            "With the cookie, requests that change something need an `Origin` header, which browsers send.",
            answers={204: says("The cookie is set.", headers=COOKIE)},
        ),
        route(
            "GET /session",
            show,
            ANY_SCOPE,
            "getSession",
            "Show who is making this request",
            answers={200: says("The name and the scopes of the token.", PRINCIPAL)},
        ),
        route(
            "DELETE /session",
            close_session,
            None,
            "closeSession",
            "End the session",
            answers={204: says("The cookie is removed.", headers=COOKIE)},
        ),
    ],
)
