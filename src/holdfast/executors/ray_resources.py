"""The resources that a task requests, in Ray's terms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(KiB|MiB|GiB|TiB|)")


def memory_bytes(value: object) -> int:
    """A number of bytes, or a text such as `4GiB`."""
    found = _SIZE.fullmatch(str(value).strip())
    if found is None:
        raise ValueError(f"memory={value!r} must be a number of bytes, or a string such as '4GiB'")
    return int(float(found[1]) * _UNITS[found[2]])


def of_job(resources: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields of a job submission."""
    needs = dict(resources or {})
    fields: dict[str, Any] = {}
    if "cpu" in needs:
        fields["entrypoint_num_cpus"] = needs["cpu"]
    if "gpu" in needs:
        fields["entrypoint_num_gpus"] = needs["gpu"]
    if "memory" in needs:
        fields["entrypoint_memory"] = memory_bytes(needs["memory"])
    if needs.get("custom"):
        fields["entrypoint_resources"] = dict(needs["custom"])
    return fields


def of_actor(resources: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options of an actor."""
    needs = dict(resources or {})
    options: dict[str, Any] = {"num_cpus": needs.get("cpu", 0)}
    if "gpu" in needs:
        options["num_gpus"] = needs["gpu"]
    if "memory" in needs:
        options["memory"] = memory_bytes(needs["memory"])
    if needs.get("custom"):
        options["resources"] = dict(needs["custom"])
    return options
