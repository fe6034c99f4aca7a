"""Holdfast in Django's admin: runs with their attempts, workers, queues. Runs are changed only by operations."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.html import format_html, format_html_join

from holdfast import ops
from holdfast.django import databases, showing
from holdfast.django.calls import cancel_on, retry_on, why_on
from holdfast.django.listing import (
    BoundedPaginator,
    QueueFilter,
    RunChangeList,
    StatusFilter,
    TaskFilter,
    begins_with,
    configured_queues,
)
from holdfast.django.models import Queue, Run, Worker
from holdfast.domain.errors import HoldfastError
from holdfast.domain.records import QueueRecord
from holdfast.domain.tasks import is_short_text
from holdfast.ops.queues import list_queues, pause_queue, resume_queue

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
    list_display = ("id", "task", "status", "attempts", "queue", "created", "finished")
    list_display_links = ("id",)
    list_filter = (StatusFilter, QueueFilter, TaskFilter)
    list_per_page = 50
    search_fields = ("task",)
    search_help_text = "The id of a run, or the beginning of a task's path"
    sortable_by = ()
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # they count all runs
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
        "return_value",
        "reported_progress",
        "history",
        "created_at",
        "run_after",
        "started_at",
        "finished_at",
        "lease_owner",
        "lease_expires_at",
        "job_id",
        "concurrency",
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

    @admin.display(description="created")
    def created(self, run: Any) -> str:
        return showing.moment(run.created_at)

    @admin.display(description="finished")
    def finished(self, run: Any) -> str:
        return showing.moment(run.finished_at)

    @admin.display(description="why")
    def why(self, run: Any) -> Any:
        reasons = why_on(_database(run), str(run.pk))
        return format_html_join("", "<div>{}</div>", ((showing.sentence(run, one.detail),) for one in reasons))

    @admin.display(description="arguments")
    def arguments(self, run: Any) -> Any:
        return format_html("<pre>{}</pre>", showing.document(run, run.parameters))

    @admin.display(description="return value")
    def return_value(self, run: Any) -> Any:
        return format_html("<pre>{}</pre>", showing.return_value(run, _database(run)))

    @admin.display(description="progress")
    def reported_progress(self, run: Any) -> Any:
        return format_html("<pre>{}</pre>", showing.document(run, run.progress)) if run.progress else "-"

    @admin.display(description="concurrency key")
    def concurrency(self, run: Any) -> str:
        return showing.sentence(run, run.concurrency_key) or "-"

    @admin.display(description="attempts")
    def history(self, run: Any) -> Any:
        tried = databases.run(_database(run), ops.attempts(str(run.pk)))
        lines = ((showing.attempt_headline(one), showing.attempt_error(run, one)) for one in tried)
        return format_html_join("", "<div>{}</div><pre>{}</pre>", lines)

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
    list_display = ("name", "state", "hostname", "pid", "executor", "slots", "started", "heartbeat")
    list_filter = ("executor",)
    search_fields = ("name", "hostname")
    show_full_result_count = False

    @admin.display(description="state")
    def state(self, worker: Any) -> str:
        """A worker that was killed is lost as soon as its lease has expired."""
        if worker.stopped_at is not None:
            return "stopped"
        return "lost" if worker.expires_at < timezone.now() else "alive"

    @admin.display(description="started", ordering="started_at")
    def started(self, worker: Any) -> str:
        return showing.moment(worker.started_at)

    @admin.display(description="heartbeat", ordering="heartbeat_at")
    def heartbeat(self, worker: Any) -> str:
        return showing.moment(worker.heartbeat_at)


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
            "queues": _with_idle(databases.run(database, list_queues()), configured_queues(database)),
            "may_pause": self.has_pause_permission(request),
        }
        return TemplateResponse(request, "admin/holdfast/queue/change_list.html", context)

    def _change(self, request: HttpRequest, database: str) -> HttpResponse:
        if not self.has_pause_permission(request):
            raise PermissionDenied
        name, action = request.POST.get("queue", ""), request.POST.get("action")
        if not is_short_text(name):
            raise BadRequest("the name of a queue must be 1 to 255 printable characters")
        if action == "pause":
            databases.run(database, pause_queue(name, f"{request.user.get_username()} (admin)", None))
        elif action == "resume":
            databases.run(database, resume_queue(name))
            databases.ring(database, [name])
        else:
            raise BadRequest("the action must be pause or resume")
        return HttpResponseRedirect(request.path)


def _database(run: Any) -> str:
    return str(run._state.db)  # noqa: SLF001 - where Django read it


def _with_idle(found: list[QueueRecord], names: set[str]) -> list[QueueRecord]:
    """The queues in use, and those in the settings that have no runs, so that they can be paused too."""
    idle = names - {queue.name for queue in found}
    return sorted([*found, *(QueueRecord(name, 0, 0, 0, None, None, None, None) for name in idle)])
