"""The example site, as a visitor uses it."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from http.cookiejar import CookieJar
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, ProxyHandler, build_opener

import psycopg
import pytest
from psycopg import sql

from tests.conftest import database_name, drop_database, with_database
from tests.django.site_support import BRIEF_LEASE, DEADLINE, ROOT, eventually


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_visitor_requests_a_forecast_and_sees_the_plot(
    server_connection: psycopg.Connection, server_url: str, run_directory: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = database_name(run_directory, "example")  # type: ignore[arg-type]
    server_connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    monkeypatch.delenv("HOLDFAST_TEST_RUN_DIRECTORY", raising=False)
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE", raising=False)
    monkeypatch.setenv("DATABASE_URL", with_database(server_url, name))
    for variable, value in BRIEF_LEASE.items():
        monkeypatch.setenv(variable, value)
    port = free_port()
    command = [sys.executable, "examples/django_site/run.py", "--port", str(port)]
    visitor = build_opener(ProxyHandler({}), HTTPCookieProcessor(CookieJar()))

    def page(path: str, **form: str) -> str:
        data = urlencode(form).encode() if form else None
        with visitor.open(f"http://127.0.0.1:{port}{path}", data, timeout=30) as answer:
            return str(answer.read().decode())

    def first_page() -> str:
        try:
            return page("/")
        except URLError:
            return ""

    with subprocess.Popen(command, cwd=ROOT) as example:
        try:
            [token] = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', eventually(first_page))
            form = {"scenario": "recession", "region": "AU", "horizon_months": "12", "paths": "200"}
            shown = page("/", csrfmiddlewaretoken=token, **form)
            assert "recession in AU" in shown
            shown = eventually(lambda: found if "<svg" in (found := page("/requests/1/")) else "")
            assert "SUCCESSFUL" in shown
            assert "attempts: 1" in shown
            assert "SUCCESSFUL" in page("/requests/1/cancel/", csrfmiddlewaretoken=token)
        finally:
            example.send_signal(signal.SIGTERM)
            example.wait(DEADLINE)
    drop_database(server_connection, name)
