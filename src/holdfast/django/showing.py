"""Values as the admin shows them: secrets masked, long texts cut, times in the current time zone."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import orjson
from django.utils import timezone

from holdfast.django import databases
from holdfast.domain.errors import HoldfastError
from holdfast.domain.masking import HIDDEN, is_secret, mask_secrets
from holdfast.sql import task_results
from holdfast.sql.task_results import TaskResultRecord

# How many characters of one value a page shows.
MOST = 20_000


def moment(at: datetime | None) -> str:
    """A time to the second, in the current time zone."""
    return "-" if at is None else f"{timezone.template_localtime(at):%Y-%m-%d %H:%M:%S}"


def masked(value: Any) -> Any:
    """The value with members masked whose names look like secrets."""
    if isinstance(value, dict):
        return {key: HIDDEN if is_secret(key) else masked(one) for key, one in value.items()}
    if isinstance(value, list):
        return [masked(one) for one in value]
    return mask_secrets(value) if isinstance(value, str) else value


def shortened(text: str) -> str:
    """The beginning of a long text."""
    return text if len(text) <= MOST else f"{text[:MOST]}\n… {len(text)} characters in all"


def document(run: Any, value: Any) -> str:
    """A JSON value as text, masked unless the user may see secrets."""
    shown = value if run.shows_secrets else masked(value)
    return shortened(json.dumps(shown, indent=2, ensure_ascii=False))


def sentence(run: Any, text: str | None) -> str:
    """A text, masked unless the user may see secrets."""
    return shortened((text or "") if run.shows_secrets else mask_secrets(text or ""))


def return_value(run: Any, database: str) -> str:
    """What the task returned. A long value is not read."""
    read: TaskResultRecord | None = databases.run(database, iter(task_results.read(str(run.pk))))
    found = None if read is None else read.result
    if found is None:
        return "-"
    if found.size is not None and found.size > MOST:
        return f"{found.size} bytes, too long for this page"
    if found.ref is None:
        return document(run, orjson.loads(found.text or "null"))
    try:
        return document(run, orjson.loads(databases.links(database).runtime.load_result(found)))
    except (HoldfastError, OSError) as error:
        return mask_secrets(f"cannot be read: {error}")


def attempt_headline(attempt: Any) -> str:
    """An attempt in one line."""
    words = [f"{attempt.number}: {attempt.status}", moment(attempt.started_at or attempt.claimed_at)]
    if attempt.reason and attempt.reason.upper() != attempt.status:
        words[0] += f" ({attempt.reason})"
    if attempt.finished_at is not None:
        words.append(f"ended {moment(attempt.finished_at)}")
    return ", ".join([*words, f"{attempt.executor} on worker {attempt.worker_id}"])


def attempt_error(run: Any, attempt: Any) -> str:
    error = attempt.error or {}
    return sentence(run, error.get("traceback") or error.get("message"))
