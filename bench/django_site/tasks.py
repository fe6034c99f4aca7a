"""The task of the site, declared with Django's own decorator."""

from __future__ import annotations

from django.tasks import task

from bench.board import body


@task
def noop(n: int) -> dict[str, int]:
    return body(n)
