"""The figures of a run as one JSON document: machine, settings, versions, every sample."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.goals import Line, lines
from bench.rounds import Experiment, Outcome, Sizes


def machine() -> dict[str, Any]:
    model = re.search(r"model name\s*:\s*(.+)", _read("/proc/cpuinfo"))
    memory = re.search(r"MemTotal:\s*(\d+)", _read("/proc/meminfo"))
    return {
        "cores": os.cpu_count(),
        "processor": model[1] if model else platform.processor(),
        "memory_gigabytes": round(int(memory[1]) / 1024 / 1024, 1) if memory else None,
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _read(path: str) -> str:
    return Path(path).read_text() if Path(path).is_file() else ""


def document(
    outcomes: Mapping[str, Outcome],
    sizes: Sizes,
    settings: Mapping[str, str],
    contenders: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    return {
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python -m bench", *sys.argv[1:]]),
        "machine": machine(),
        "postgres": dict(settings),
        "sizes": sizes._asdict(),
        "contenders": dict(contenders),
        "outcomes": {name: asdict(outcome) for name, outcome in outcomes.items()},
        "lines": [_line(line) for line in lines(outcomes)],
    }


def _line(line: Line) -> dict[str, Any]:
    return line._asdict() | {"figure": line.figure._asdict() if line.figure else None}


def write(path: Path, made: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")


def outcomes_of(made: Mapping[str, Any]) -> dict[str, Outcome]:
    return {name: Outcome(**found) for name, found in made["outcomes"].items()}


def merged(documents: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Several runs as one: where two have an experiment, the later one counts."""
    together: dict[str, Any] = {}
    for one in documents:
        outcomes = together.get("outcomes", {}) | one["outcomes"]
        contenders = together.get("contenders", {}) | one["contenders"]
        together = {**one, "outcomes": outcomes, "contenders": contenders}
    together["lines"] = [_line(line) for line in lines(outcomes_of(together))]
    return together


def by_server(documents: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Several runs as one for each server, in the order in which the servers come first."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for one in documents:
        found.setdefault(one["postgres"]["server"], []).append(one)
    return [merged(runs) for runs in found.values()]


def participants(experiments: Iterable[Experiment], entries: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Who took part: configuration and versions by name."""
    found = {}
    for experiment in experiments:
        for entry in entries[experiment.name]:
            found[entry.contender.name] = {"config": entry.contender.config, "versions": entry.contender.versions}
    return found
