"""Rendering of messages that contain ids and exact times, as commands show ids and times elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.cli import output

if TYPE_CHECKING:
    from holdfast.verbs.facades import Calls

_TIME = re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
_ID = re.compile(r"(?<=\bworker )[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


def worker_names(client: Calls) -> dict[str, str]:
    """The names of workers by id; empty if the token may not read them."""
    from holdfast.domain.errors import NotAllowed

    try:
        return {worker.id: worker.name for worker in client.workers()}
    except NotAllowed:
        return {}


def worker(worker_id: str | None, names: Mapping[str, str]) -> str | None:
    """A worker by its name if that is known, and its id."""
    name = names.get(worker_id or "")
    return f"{name} ({worker_id})" if name else worker_id


def rendered(text: str, names: Mapping[str, str], when: Callable[[datetime], str] = output.when) -> str:
    """A sentence with its times as `when` writes them, and with the names of the workers in it."""
    named = _ID.sub(lambda found: worker(found[0], names) or "", text)
    return _TIME.sub(lambda found: when(datetime.fromisoformat(found[0])), named)
