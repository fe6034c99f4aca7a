"""holdfast tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import output
from holdfast.cli.output import Column
from holdfast.cli.session import json_option

if TYPE_CHECKING:
    from holdfast.domain.tasks import Registry, Task


@click.group()
def tasks() -> None:
    """List the registered tasks and their parameters."""


def _registered() -> Registry:
    """The tasks of this machine's settings; no database is needed to know them."""
    from holdfast.domain.tasks import load_modules, registry
    from holdfast.runtime.settings import load

    load_modules(("holdfast.tasks", *load().tasks))
    return registry


def _about(task: Task) -> str:
    from holdfast.documents.others import about

    return about(task)


def _signature(task: Task) -> str:
    schema = task.schema()
    required = schema.get("required", [])
    words = []
    for name, about in schema.get("properties", {}).items():
        default = f"={output.compact(about['default'])}" if "default" in about else "" if name in required else "=…"
        words.append(name + default)
    return ", ".join(words)


TASKS: list[Column[Task]] = [
    Column("TASK", lambda task: task.name),
    Column("QUEUE", lambda task: task.queue),
    Column("PARAMETERS", _signature, wide=True),
    Column("ABOUT", _about, wide=True),
]


def _document(task: Task) -> dict[str, Any]:
    from holdfast.documents.others import task_document
    from holdfast.domain.policies import Retry

    return task_document(task) | {"retry": _plain(task.retry or Retry())}


def _plain(retry: Any) -> dict[str, Any]:
    return {
        "max_attempts": retry.max_attempts,
        "delays": None if retry.backoff else [float(delay) for delay in retry.delays],
        "backoff": retry.backoff,
    }


@tasks.command("list")
@json_option
def list_tasks(as_json: bool) -> None:
    """List the registered tasks."""
    registry = _registered()
    found = [registry.get(name) for name in registry.names()]
    output.listing(TASKS, found, _document, as_json)


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
            ("about", _about(task) or None),
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
        {
            "name": name,
            "type": _type(about),
            "default": "(required)"
            if name in required
            else output.compact(about["default"])
            if "default" in about
            else None,
            "about": about.get("description"),
        }
        for name, about in schema.get("properties", {}).items()
    ]


def _type(about: dict[str, Any]) -> str:
    if "enum" in about:
        return " or ".join(map(output.compact, about["enum"]))
    if "anyOf" in about:
        return " or ".join(map(_type, about["anyOf"]))
    limits = [f"{sign} {about[name]}" for name, sign in LIMITS.items() if name in about]
    return " ".join([str(about.get("type", "any")), *limits])


LIMITS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
