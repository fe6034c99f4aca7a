"""A change list of runs that stays fast with millions of them.

The ids of a page are found first, newest first, and the runs are then read by key. Counting is bounded, filters offer
the configured values instead of querying for distinct ones, and the filter by status reads the table of that status.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import cached_property
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models.expressions import RawSQL
from django.db.models.functions import Collate
from django.db.models.lookups import Exact, GreaterThanOrEqual, LessThan
from django.utils.module_loading import autodiscover_modules

from holdfast.django import databases
from holdfast.django.backend import HoldfastBackend
from holdfast.django.compat import task_backends
from holdfast.django.performing import django_task
from holdfast.domain.tasks import registry
from holdfast.sql import runs as runs_sql

# The maximum number of rows that are counted, or found by status.
MOST = 1_000
FIRST_SURROGATE, FIRST_AFTER_SURROGATES = 0xD800, 0xE000
_LIVE = {
    "PENDING": """
        (select run_id from holdfast.ready order by run_id desc limit %s)
        union all (select run_id from holdfast.waiting order by run_id desc limit %s)""",
    "RUNNING": "select run_id from holdfast.leases order by run_id desc limit %s",
}
_ENDED = "select run_id from holdfast.attempts where outcome = %s and reopened_at is null order by run_id desc limit %s"


class BoundedPaginator(Paginator):
    """Counts no further than `MOST`: later pages are reached by filters."""

    @cached_property
    def count(self) -> int:
        return int(self.object_list.order_by()[: MOST + 1].count())


class RunChangeList(ChangeList):
    queryset: Any
    result_list: Any

    def get_results(self, request: Any) -> None:
        self.queryset = self.queryset.only("id")
        super().get_results(request)
        found = [str(one.pk) for one in self.result_list]
        alias = self.queryset.db
        records = databases.run(alias, iter(runs_sql.read_many(found))) if found else []
        self.result_list = [as_model(self.model, record, alias) for record in records]


def as_model(model: Any, record: Any, alias: str) -> Any:
    """A run that an operation has read, as an instance of its model."""
    names = {field.attname for field in model._meta.concrete_fields}  # noqa: SLF001 - Django's public name
    made = model(**{name: value for name, value in record._asdict().items() if name in names})
    made._state.db, made._state.adding = alias, False  # noqa: SLF001
    return made


class StatusFilter(admin.SimpleListFilter):
    title = "status"
    parameter_name = "status"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name.capitalize()) for name in ("PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED")]

    def queryset(self, request: Any, queryset: Any) -> Any:
        chosen = self.value()
        if chosen in _LIVE:
            sql = _LIVE[chosen]
            return queryset.filter(id__in=RawSQL(sql, (MOST,) * sql.count("%s")))  # noqa: S611 - constants
        return queryset if chosen is None else queryset.filter(id__in=RawSQL(_ENDED, (chosen, MOST)))  # noqa: S611


class QueueFilter(admin.SimpleListFilter):
    title = "queue"
    parameter_name = "queue"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in sorted(configured_queues(model_admin.get_queryset(request).db))]

    def queryset(self, request: Any, queryset: Any) -> Any:
        return equals(queryset, "queue", self.value())


class TaskFilter(admin.SimpleListFilter):
    title = "task"
    parameter_name = "task"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        # A site may not have imported its tasks yet. A module that cannot be imported must not break the page.
        with suppress(Exception):
            autodiscover_modules("tasks")
        return [(name, name) for name in registry.names() if django_task(name) is not None]

    def queryset(self, request: Any, queryset: Any) -> Any:
        return equals(queryset, "task", self.value())


def configured_queues(database: str) -> set[str]:
    """The queues in the settings of the backends that use this database."""
    ours = [one for one in task_backends.all() if isinstance(one, HoldfastBackend) and one.database == database]
    return {name for backend in ours for name in backend.queues}


def bytewise(name: str) -> Any:
    """Compare a column byte by byte, which is the order of the indexes by queue and by task."""
    return Collate(name, "C")


def equals(queryset: Any, name: str, value: str | None) -> Any:
    """Filter by the exact value of a column, if one is given."""
    if not value:
        return queryset
    return queryset.filter(Exact(bytewise(name), value)) if is_storable(value) else queryset.none()


def begins_with(queryset: Any, name: str, text: str) -> Any:
    """Filter by the beginning of a column, which is a range of its index."""
    if not is_storable(text):
        return queryset.none()
    found = queryset.filter(GreaterThanOrEqual(bytewise(name), text))
    after = successor(text)
    return found if after is None else found.filter(LessThan(bytewise(name), after))


def successor(text: str) -> str | None:
    """The first text after all that begin with this one, in the order of bytes; None if there is none."""
    shorter = text.rstrip(chr(sys.maxunicode))
    if not shorter:
        return None
    after = ord(shorter[-1]) + 1
    return shorter[:-1] + chr(FIRST_AFTER_SURROGATES if after == FIRST_SURROGATE else after)


def is_storable(text: str) -> bool:
    """Whether Postgres can store a text: otherwise no row contains it, and a query for it fails."""
    return "\0" not in text and not any(FIRST_SURROGATE <= ord(c) < FIRST_AFTER_SURROGATES for c in text)
