"""holdfast tasks."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli import output
from holdfast.cli.output import Column
from holdfast.cli.session import json_option
from holdfast.documents.others import about, task_document
from holdfast.domain.policies import Retry, seconds_of
from holdfast.domain.tasks import Registry, Task, load_modules, registry


@click.group()
def tasks() -> None:
    """List the registered tasks and their parameters."""


def _registered() -> Registry:
    """The tasks of this machine's settings; no database is needed to know them."""
    from holdfast.runtime.settings import load

    load_modules(("holdfast.tasks", *load().tasks))
    return registry


def _signature(task: Task) -> str:
    schema = task.schema()
    required = schema.get("required", [])
    words = []
    for name, one in schema.get("properties", {}).items():
        default = f"={output.compact(one['default'])}" if "default" in one else "" if name in required else "=…"
        words.append(name + default)
    return ", ".join(words)


TASKS: list[Column[Task]] = [
    Column("TASK", lambda task: task.name),
    Column("QUEUE", lambda task: task.queue),
    Column("PARAMETERS", _signature, wide=True),
    Column("ABOUT", about, wide=True),
]


def _document(task: Task) -> dict[str, Any]:
    retry = task.retry or Retry()
    delays = None if retry.backoff else list(map(seconds_of, retry.delays))
    shown = {"max_attempts": retry.max_attempts, "delays": delays, "backoff": retry.backoff}
    return task_document(task) | {"retry": shown}


@tasks.command("list")
@json_option
def list_tasks(as_json: bool) -> None:
    """List the registered tasks."""
    known = _registered()
    output.listing(TASKS, [known.get(name) for name in known.names()], _document, as_json)


@tasks.command()
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Show a task: its policies, and a JSON Schema of its parameters."""
    task = _registered().get(name)
    shown = _document(task)
    if as_json:
        output.document(shown)
        return
    retry = shown["retry"]
    output.fields(
        [
            ("task", task.name),
            ("about", about(task) or None),
            ("defined in", task.place),
            ("queue", task.queue),
            ("priority", task.priority),
            ("timeout", output.duration(task.timeout.total_seconds()) if task.timeout else "none"),
            ("attempts", retry["max_attempts"]),
            ("delays", retry["backoff"] or ", ".join(f"{delay:g} s" for delay in retry["delays"])),
            ("dedupe", shown["dedupe"]),
            ("ignored in hash", ", ".join(task.ignore_in_hash) or None),
        ]
    )
    output.data("")
    output.table(PARAMETERS, _parameters(task))


PARAMETERS: list[Column[dict[str, Any]]] = [
    Column("PARAMETER", lambda parameter: parameter["name"]),
    Column("TYPE", lambda parameter: parameter["type"], wide=True),
    Column("DEFAULT", lambda parameter: parameter["default"]),
    Column("ABOUT", lambda parameter: parameter["about"], wide=True),
]


def _parameters(task: Task) -> list[dict[str, Any]]:
    schema = task.schema()
    required = schema.get("required", [])
    return [
        {"name": name, "type": _type(one), "default": _default(one, name in required), "about": one.get("description")}
        for name, one in schema.get("properties", {}).items()
    ]


def _default(schema: dict[str, Any], required: bool) -> str | None:
    if required:
        return "(required)"
    return output.compact(schema["default"]) if "default" in schema else None


def _type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(map(output.compact, schema["enum"]))
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    limits = [f"{sign} {schema[name]}" for name, sign in LIMITS.items() if name in schema]
    return " ".join([str(schema.get("type", "any")), *limits])


LIMITS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
