"""What crosses between a worker and its children as JSON although it holds more than JSON knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from holdfast.domain.values import Dependency, NewRun


def sent_run(new: NewRun) -> dict[str, Any]:
    """Return a new run as JSON, without its name: it is created once, when the run that adds it succeeds."""
    options = sent_options({field.name: getattr(new, field.name) for field in fields(new) if field.name != "known_as"})
    return options | {"depends_on": [list(dependency) for dependency in new.depends_on]}


def received_run(sent: Mapping[str, Any]) -> NewRun:
    options = received_options(sent)
    depends_on = tuple(Dependency(*dependency) for dependency in sent["depends_on"])
    return NewRun(**{**options, "tags": tuple(sent["tags"]), "depends_on": depends_on})


def sent_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of `submit` as JSON: times as texts that say what they are."""

    def plain(value: Any) -> Any:
        if isinstance(value, timedelta):
            return {"seconds": value.total_seconds()}
        if isinstance(value, datetime):
            return {"at": value.isoformat()}
        return value

    return {name: plain(value) for name, value in options.items()}


def received_options(options: Mapping[str, Any]) -> dict[str, Any]:
    def real(value: Any) -> Any:
        match value:
            case {"seconds": float() | int() as seconds}:
                return timedelta(seconds=seconds)
            case {"at": str() as text}:
                return datetime.fromisoformat(text)
            case _:
                return value

    return {name: real(value) for name, value in options.items()}
