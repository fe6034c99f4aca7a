"""Holdfast's own client and jobs in a Django site, on the site's database.

with transaction.atomic():
    Jobs(client().on(connection)).create_job("import", [job_task(load, day), job_task(report, day=day)])
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.client import Client
from holdfast.client.shared import client_for
from holdfast.django import databases
from holdfast.django.compat import task_backends
from holdfast.django.payloads import encoded


def client(backend: str = "default") -> Client:
    """The blocking client of this process for the database of a backend in TASKS.

    It has its own connections. `client().on(connection)` makes the same calls on Django's connection and transaction.
    """
    alias = databases.chosen_alias(task_backends[backend].options)
    return client_for(replace(databases.settings(), database_url=databases.url_of(alias)))


def job_task(task: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return a call of a Django task as a task of a job. Add `key`, `depends_on` and other members as needed."""
    arguments = encoded(args, kwargs)
    later = {} if task.run_after is None else {"run_after": task.run_after}
    return {
        "entrypoint": task.module_path,
        "kwargs": {"args": arguments.args, "kwargs": arguments.kwargs},
        "queue": task.queue_name,
        "priority": int(task.priority),
        **later,
    }
