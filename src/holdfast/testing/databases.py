"""Databases for tests: created on a server, and dropped afterwards even if they are in use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
from psycopg import sql


@contextmanager
def scratch(server_url: str, template: str | None = None) -> Iterator[str]:
    """Create a database, empty or as a copy of the template, and yield its address."""
    name = f"holdfast_scratch_{uuid4().hex[:12]}"
    create = sql.SQL("create database {}").format(sql.Identifier(name))
    if template is not None:
        # Copying files is several times as fast as replaying them through the log.
        create += sql.SQL(" template {} strategy file_copy").format(sql.Identifier(template))
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(create)
        try:
            yield urlsplit(server_url)._replace(path=f"/{name}").geturl()
        finally:
            connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))
