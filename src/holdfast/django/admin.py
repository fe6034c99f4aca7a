"""Holdfast in Django's admin: runs with their attempts, workers, queues. Runs are changed only by operations."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.html import format_html, format_html_join

from holdfast import ops
from holdfast.django import databases
from holdfast.django.calls import cancel_on, retry_on
from holdfast.django.listing import BoundedPaginator, QueueFilter, RunChangeList, StatusFilter, TaskFilter, begins_with
from holdfast.django.models import Queue, Run, Worker
from holdfast.domain.errors import HoldfastError
from holdfast.domain.masking import HIDDEN, is_secret, mask_secrets
from holdfast.sql import queues as queues_sql
from holdfast.sql.statement import Op

AT_ONCE = 1000


class ReadOnlyAdmin(admin.ModelAdmin):
    """Forms cannot add, change or delete anything."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin):
    list_display = ("id", "task", "status", "queue", "priority", "created_at", "started_at", "finished_at", "attempts")
    list_display_links = ("id",)
    list_filter = (StatusFilter, QueueFilter, TaskFilter)
    list_per_page = 50
    search_fields = ("task",)
    search_help_text = "The id of a run, or the beginning of a task's path"
    sortable_by = ()
    show_full_result_count = False
    paginator = BoundedPaginator
    actions = ("cancel_runs", "retry_runs")
    fields = (
        "id",
        "task",
        "status",
        "why",
        "queue",
        "priority",
        "arguments",
        "progress",
        "history",
        "created_at",
        "run_after",
        "started_at",
        "finished_at",
        "lease_owner",
        "lease_expires_at",
        "job_id",
        "concurrency_key",
        "tags",
    )
    readonly_fields = fields

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RunChangeList]:
        return RunChangeList

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        try:
            return queryset.filter(pk=uuid.UUID(term)), False
        except ValueError:
            return begins_with(queryset, "task", term), False

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        if obj is not None:
            obj.shows_secrets = request.user.has_perm("holdfast.view_secrets")
        return self.fields

    @admin.display(description="attempts")
    def attempts(self, run: Any) -> str:
        return f"{run.attempt_count} of {run.max_attempts}"

    @admin.display(description="why")
    def why(self, run: Any) -> Any:
        reasons = databases.run(_database(run), ops.explain(str(run.pk)))
        return format_html_join("", "<div>{}</div>", ((reason.detail,) for reason in reasons))

    @admin.display(description="arguments")
    def arguments(self, run: Any) -> Any:
        shown = run.parameters if run.shows_secrets else masked(run.parameters)
        return format_html("<pre>{}</pre>", json.dumps(shown, indent=2, ensure_ascii=False))

    @admin.display(description="attempts")
    def history(self, run: Any) -> Any:
        tried = databases.run(_database(run), ops.attempts(str(run.pk)))
        return format_html_join("", "<div>{}</div><pre>{}</pre>", ((_headline(one), _error(run, one)) for one in tried))

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("holdfast.cancel_run"))

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("holdfast.retry_run"))

    @admin.action(description="Cancel selected runs", permissions=["cancel"])
    def cancel_runs(self, request: HttpRequest, queryset: Any) -> None:
        self._each(request, queryset, "cancelled or asked to stop", cancel_on)

    @admin.action(description="Retry selected runs", permissions=["retry"])
    def retry_runs(self, request: HttpRequest, queryset: Any) -> None:
        self._each(request, queryset, "reopened", retry_on)

    def _each(self, request: HttpRequest, queryset: Any, done: str, act: Callable[[str, str, str], Any]) -> None:
        """Apply an action to each run in a separate transaction, so that one failure does not affect the other runs."""
        ids = [str(pk) for pk in queryset.order_by("-id").values_list("pk", flat=True)[:AT_ONCE]]
        count = 0
        for run_id in ids:
            try:
                act(queryset.db, run_id, f"{request.user.get_username()} (admin)")
                count += 1
            except HoldfastError as error:
                self.message_user(request, str(error), messages.WARNING)
        self.message_user(request, f"{count} of {len(ids)} runs were {done}.")


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    list_display = ("name", "hostname", "pid", "executor", "slots", "started_at", "heartbeat_at", "stopped_at", "id")
    list_filter = ("executor",)
    search_fields = ("name", "hostname")
    show_full_result_count = False


@admin.register(Queue)
class QueueAdmin(ReadOnlyAdmin):
    """A custom page, because a queue needs no row to have runs or to be paused."""

    def has_pause_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("holdfast.pause_queue"))

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        database = self.get_queryset(request).db
        if request.method == "POST":
            return self._change(request, database)
        context = {
            **self.admin_site.each_context(request),
            "title": "Queues",
            "opts": self.opts,
            "queues": databases.run(database, _queues()),
            "may_pause": self.has_pause_permission(request),
        }
        return TemplateResponse(request, "admin/holdfast/queue/change_list.html", context)

    def _change(self, request: HttpRequest, database: str) -> HttpResponse:
        if not self.has_pause_permission(request):
            raise PermissionDenied
        name, by = request.POST["queue"], f"{request.user.get_username()} (admin)"
        if request.POST["action"] == "pause":
            databases.run(database, _pause(name, by))
        else:
            databases.run(database, _resume(name))
            databases.ring(database, [name])
        return HttpResponseRedirect(request.path)


def _database(run: Any) -> str:
    return str(run._state.db)  # noqa: SLF001 - where Django read it


def _queues() -> Op[list[Any]]:
    return (yield from queues_sql.listing())


def _pause(name: str, by: str) -> Op[None]:
    yield from queues_sql.pause(name, by, None)


def _resume(name: str) -> Op[None]:
    yield from queues_sql.resume(name)


def _headline(attempt: Any) -> str:
    times = f"{attempt.started_at or attempt.claimed_at:%Y-%m-%d %H:%M:%S}"
    why = f" ({attempt.reason})" if attempt.reason else ""
    return f"{attempt.number}: {attempt.status}{why}, {times}, {attempt.executor} on worker {attempt.worker_id}"


def _error(run: Any, attempt: Any) -> str:
    error = attempt.error or {}
    text = error.get("traceback") or error.get("message") or ""
    return text if run.shows_secrets else mask_secrets(text)


def masked(value: Any) -> Any:
    """The value with members masked whose names look like secrets."""
    if isinstance(value, dict):
        return {key: HIDDEN if is_secret(key) else masked(one) for key, one in value.items()}
    if isinstance(value, list):
        return [masked(one) for one in value]
    return mask_secrets(value) if isinstance(value, str) else value
