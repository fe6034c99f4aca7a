"""A change list of runs that stays fast with millions of them.

The ids of a page are found first, newest first, and the runs are then read by key. Counting is bounded, filters offer
the configured values instead of querying for distinct ones, and the filter by status reads the table of that status.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models.expressions import RawSQL
from django.db.models.functions import Collate
from django.db.models.lookups import Exact, GreaterThanOrEqual, LessThan

from holdfast.django import databases
from holdfast.django.compat import task_backends
from holdfast.django.performing import django_task
from holdfast.domain.tasks import registry
from holdfast.sql import runs as runs_sql
from holdfast.sql.statement import Op

# The maximum number of rows that are counted, or found by status.
MOST = 1_000
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
        records = databases.run(alias, _read(found)) if found else []
        self.result_list = [as_model(self.model, record, alias) for record in records]


def as_model(model: Any, record: Any, alias: str) -> Any:
    """A run that an operation has read, as an instance of its model."""
    names = {field.attname for field in model._meta.concrete_fields}  # noqa: SLF001 - Django's public name
    made = model(**{name: value for name, value in record._asdict().items() if name in names})
    made._state.db, made._state.adding = alias, False  # noqa: SLF001
    return made


def _read(ids: list[str]) -> Op[list[Any]]:
    return (yield from runs_sql.read_many(ids))


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
        names = {name for backend in task_backends.all() for name in backend.queues}
        return [(name, name) for name in sorted(names)]

    def queryset(self, request: Any, queryset: Any) -> Any:
        return queryset.filter(Exact(bytewise("queue"), self.value())) if self.value() else queryset


class TaskFilter(admin.SimpleListFilter):
    title = "task"
    parameter_name = "task"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in registry.names() if django_task(name) is not None]

    def queryset(self, request: Any, queryset: Any) -> Any:
        return queryset.filter(Exact(bytewise("task"), self.value())) if self.value() else queryset


def bytewise(name: str) -> Any:
    """Compare a column byte by byte, which is the order of the indexes by queue and by task."""
    return Collate(name, "C")


def begins_with(queryset: Any, name: str, text: str) -> Any:
    """Filter by the beginning of a column, which is a range of its index."""
    after = text[:-1] + chr(ord(text[-1]) + 1)
    column = bytewise(name)
    return queryset.filter(GreaterThanOrEqual(column, text), LessThan(column, after))
