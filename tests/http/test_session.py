"""Browser sessions: a cookie that contains a token, and pages with scopes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from flask.testing import FlaskClient

from holdfast.drivers.psycopg import transact
from holdfast.http.app import Api, Guard
from holdfast.http.call import Call
from holdfast.http.nouns import NOUNS
from holdfast.http.principals import NAME, SECURE_NAME
from holdfast.http.routes import Noun, page, shown
from holdfast.http.service import Service
from holdfast.ops.tokens import revoke_token
from holdfast.runtime.settings import Settings
from tests.http.conftest import Mint, bearer
from tests.http.test_submit import problem

HERE = {"Origin": "http://localhost"}
RUN = {"model": "mirror", "dedupe": "off"}


def cookie(token: str, name: str = NAME) -> dict[str, str]:
    return {"Cookie": f"theme=dark; {name}={token}"}


def test_a_token_opens_a_session_that_scripts_cannot_read(api: FlaskClient, make_token: Mint) -> None:
    token, _ = make_token("runs:read", name="alice")
    answer = api.post("/session", headers=bearer(token))
    assert answer.status_code == 204
    assert answer.headers["Set-Cookie"] == f"{NAME}={token}; Path=/; HttpOnly; SameSite=Lax"
    who = api.get("/session", headers=cookie(token))
    assert who.json == {"name": "alice", "scopes": ["runs:read"]}


@pytest.mark.parametrize("header", [{"Origin": "https://localhost"}, {"X-Forwarded-Proto": "https"}])
def test_over_https_the_cookie_is_secure_and_bound_to_the_host(
    api: FlaskClient, make_token: Mint, header: dict[str, str]
) -> None:
    token, _ = make_token()
    answer = api.post("/session", headers={**bearer(token), **header})
    assert answer.headers["Set-Cookie"] == f"{SECURE_NAME}={token}; Path=/; HttpOnly; SameSite=Lax; Secure"
    assert api.get("/runs", headers=cookie(token, SECURE_NAME)).status_code == 200


@pytest.mark.parametrize("header", [{"Origin": "https://localhost"}, {"X-Forwarded-Proto": "https"}])
def test_over_https_a_cookie_that_a_subdomain_may_have_planted_is_ignored(
    api: FlaskClient, make_token: Mint, header: dict[str, str]
) -> None:
    planted, _ = make_token("admin", name="attacker")
    assert api.get("/session", headers={**cookie(planted), **header}).status_code == 401
    assert api.post("/runs", json=RUN, headers={**cookie(planted), "Origin": "https://localhost"}).status_code == 401


@pytest.mark.parametrize("blank", ["\xa0", "\x85", "\x1c", "\x0b"])
def test_cookie_whose_name_only_resembles_the_secure_one_counts_as_none(
    api: FlaskClient, make_token: Mint, blank: str
) -> None:
    """A browser does not reserve such a name for the host, so a subdomain may have set it."""
    mine, _ = make_token("runs:read", name="alice")
    planted, _ = make_token("admin", name="attacker")
    cookies = f"{SECURE_NAME}={mine}; {blank}{SECURE_NAME}={planted}"
    who = api.get("/session", headers={"Cookie": cookies, "X-Forwarded-Proto": "https"})
    assert (who.status_code, who.json["name"]) == (200, "alice")


@pytest.mark.parametrize("other", ['a={"x": 1}', "version=2", "path", "a b=1", "x=\xe4", 'a="', "=", "", "a=="])
def test_cookies_of_other_servers_on_the_same_host_do_not_end_the_session(
    api: FlaskClient, make_token: Mint, other: str
) -> None:
    token, _ = make_token("runs:read", name="alice")
    for cookies in (
        f"{other}; {NAME}={token}",
        f"{NAME}={token};{other}",
        f"x{NAME}=no; {other}; {NAME}={token} ; y=z",
    ):
        answer = api.get("/session", headers={"Cookie": cookies})
        assert (answer.status_code, answer.json["name"]) == (200, "alice")


def test_a_session_is_not_opened_without_the_token_itself(api: FlaskClient, make_token: Mint) -> None:
    token, _ = make_token()
    for headers in ({}, {**cookie(token), **HERE}, {"Authorization": "Bearer hf_abc_def"}):
        answer = api.post("/session", headers=headers)
        assert (answer.status_code, problem(answer)) == (401, "unauthenticated")
        assert "Set-Cookie" not in answer.headers


def test_closing_a_session_removes_the_cookie(api: FlaskClient, make_token: Mint) -> None:
    token, _ = make_token()
    answer = api.delete("/session", headers={**cookie(token), **HERE})
    assert answer.status_code == 204
    assert answer.headers["Set-Cookie"] == f"{NAME}=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0"


def test_a_cookie_has_the_scopes_of_its_token(api: FlaskClient, make_token: Mint) -> None:
    token, _ = make_token("runs:read")
    assert api.get("/runs", headers=cookie(token)).status_code == 200
    answer = api.post("/runs", json=RUN, headers={**cookie(token), **HERE})
    assert (answer.status_code, problem(answer)) == (403, "insufficient-scope")


def test_cookie_and_header_of_one_token_are_the_same_principal(api: FlaskClient, make_token: Mint) -> None:
    token, _ = make_token()
    key = {"Idempotency-Key": "same"}
    first = api.post("/runs", json=RUN, headers={**bearer(token), **key})
    again = api.post("/runs", json=RUN, headers={**cookie(token), **HERE, **key})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json["run_id"] == again.json["run_id"]


def test_authorization_header_takes_precedence_over_the_cookie(api: FlaskClient, make_token: Mint) -> None:
    cookie_token, _ = make_token(name="cookie")
    header_token, _ = make_token(name="header")
    who = api.get("/session", headers={**cookie(cookie_token), **bearer(header_token)})
    assert who.json["name"] == "header"
    answer = api.get("/session", headers={**cookie(cookie_token), "Authorization": "Bearer hf_abc_def"})
    assert answer.status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "same-site", **HERE},
        {"Sec-Fetch-Site": "none", **HERE},
        {"Origin": "null"},
        {"Origin": "http://localhost:81"},
        {"Origin": "http://evil.example"},
    ],
)
def test_cookie_may_not_change_anything_from_a_page_of_another_site(
    api: FlaskClient, make_token: Mint, headers: dict[str, str]
) -> None:
    token, _ = make_token()
    answer = api.post("/runs", json=RUN, headers={**cookie(token), **headers})
    assert (answer.status_code, problem(answer)) == (403, "cross-site")
    assert api.get("/runs", headers=cookie(token)).json["items"] == []


@pytest.mark.parametrize("headers", [HERE, {**HERE, "Sec-Fetch-Site": "same-origin"}])
def test_a_cookie_may_change_something_from_a_page_of_this_server(
    api: FlaskClient, make_token: Mint, headers: dict[str, str]
) -> None:
    token, _ = make_token()
    assert api.post("/runs", json=RUN, headers={**cookie(token), **headers}).status_code == 201


def test_a_revoked_token_ends_its_sessions(api: FlaskClient, connection: psycopg.Connection, make_token: Mint) -> None:
    token, token_id = make_token()
    assert api.get("/runs", headers=cookie(token)).status_code == 200
    transact(connection, lambda: revoke_token(token_id))
    answer = api.get("/runs", headers=cookie(token))
    assert (answer.status_code, problem(answer)) == (401, "unauthenticated")


@pytest.mark.parametrize("value", ["", "hf_abc_def", '"', "=;=", "\\"])
def test_cookie_that_is_not_a_token_is_ignored(api: FlaskClient, make_token: Mint, value: str) -> None:
    assert api.get("/runs", headers=cookie(value)).status_code == 200
    make_token()
    assert api.get("/runs", headers=cookie(value)).status_code == 401


@pytest.fixture
def pages(settings: Settings) -> Iterator[Callable[..., FlaskClient]]:
    """Serves the API with an additional page that needs the scope `operate`."""
    service = Service(settings)

    def view(call: Call) -> object:
        return shown(f"<h1>{call.principal.name}</h1>", "h1 { color: red }")

    nouns = [*NOUNS, Noun("pages", "Pages.", [page("/page", view, "operate", "getPage", "A page")])]
    yield lambda: Api(Guard(service, nouns), nouns).test_client(use_cookies=False)
    service.close()


def test_a_page_needs_its_scope_and_shows_problems_as_pages(
    pages: Callable[..., FlaskClient], make_token: Mint
) -> None:
    operator, _ = make_token("operate", name="olga")
    reader, _ = make_token("runs:read")
    browser = pages()
    shown_page = browser.get("/page", headers=cookie(operator))
    assert (shown_page.status_code, shown_page.text) == (200, "<h1>olga</h1>")
    assert "style-src 'sha256-" in shown_page.headers["Content-Security-Policy"]
    for headers, status, title in (({}, 401, "Token needed"), (cookie(reader), 403, "Not allowed")):
        refused = browser.get("/page", headers=headers)
        assert refused.status_code == status
        assert refused.headers["Content-Type"] == "text/html; charset=utf-8"
        assert refused.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert f"<h1>{title}</h1>" in refused.text
    assert "WWW-Authenticate" in browser.get("/page").headers


def test_the_page_about_the_api_needs_no_scope(api: FlaskClient, make_token: Mint) -> None:
    make_token()
    answer = api.get("/docs")
    assert answer.status_code == 200
    assert "openSession" in answer.text
