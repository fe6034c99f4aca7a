"""The run service over HTTP.

A request passes the guard (host, origin, token and scope), is read within limits, and becomes an operation of the
engine, driven on a connection of this process's pool. What the operation raises becomes a problem document by one
table. Whoever waits for a run waits at the hub, which looks at all watched runs with one statement.

Routes are data: Flask's rules, the scopes and the OpenAPI document are made from the same tables, one module per noun.
"""

from holdfast.http.app import create_app

__all__ = ["create_app"]
