"""The run service over HTTP.

A request passes the guard (host, origin, token and scope), is read within limits, and becomes an operation of the
engine, run on a connection from this process's pool. One table maps the errors that operations raise to problem
documents. Requests that wait for a run wait at the hub, which checks all watched runs with one statement.

Routes are data: Flask's rules, the scopes and the OpenAPI document are built from the same tables, one module per noun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flask import Flask

    from holdfast.runtime.settings import Settings


def create_app(settings: Settings | None = None) -> Flask:
    """The WSGI application; settings come from the environment unless given.

    It opens no connection before the first request, so a server may fork after it.
    """
    from holdfast.http.app import make

    return make(settings)
