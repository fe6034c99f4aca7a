"""Holdfast's tables as read-only models, for queries, joins and the admin. Django does not manage the tables."""

from __future__ import annotations

from django.db import models

from holdfast.django.fields import ReadOnlyModel, StoredJSON, TextList


def _member(column: str, name: str) -> property:
    """A property for a member of a JSON column, as text; None if it has none."""

    def read(self: models.Model) -> str | None:
        value = getattr(self, column)
        found = value.get(name) if isinstance(value, dict) else None
        return None if found is None else str(found)

    return property(read)


class Run(ReadOnlyModel):
    """One call of a task, with its current status. `id` is the id of its TaskResult."""

    id = models.UUIDField(primary_key=True)
    task = models.TextField()
    status = models.TextField()
    queue = models.TextField()
    priority = models.SmallIntegerField()
    parameters = StoredJSON()
    payload_hash = models.TextField()
    created_at = models.DateTimeField()
    run_after = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    attempt_count = models.IntegerField()
    max_attempts = models.IntegerField()
    reason = models.TextField(null=True)
    progress = StoredJSON(null=True)
    error = StoredJSON(null=True)
    result_ref = models.TextField(null=True)
    lease_owner = models.UUIDField(null=True)
    lease_expires_at = models.DateTimeField(null=True)
    cancel_requested_at = models.DateTimeField(null=True)
    job_id = models.UUIDField(null=True)
    parent_id = models.UUIDField(null=True)
    concurrency_key = models.TextField(null=True)
    submitted_by = models.TextField(null=True)
    tags = TextList(null=True)

    class Meta(ReadOnlyModel.Meta):
        db_table = '"holdfast"."run_status"'
        ordering = ("-id",)
        permissions = (
            ("cancel_run", "Can cancel runs"),
            ("retry_run", "Can retry runs"),
            ("view_secrets", "Can see arguments and errors unmasked"),
        )

    def __str__(self) -> str:
        return f"{self.task} {self.id}"


class Attempt(ReadOnlyModel):
    """One execution of a run that has ended."""

    pk = models.CompositePrimaryKey("run", "number")
    run = models.ForeignKey(Run, models.DO_NOTHING, related_name="attempts", db_constraint=False)
    number = models.IntegerField()
    status = models.TextField()
    outcome = models.TextField(null=True)
    worker_id = models.UUIDField(null=True)
    executor = models.TextField(null=True)
    submitted_at = models.DateTimeField(null=True, db_column="claimed_at")
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField()
    exit_code = models.IntegerField(null=True)
    reason = models.TextField(null=True)
    error = StoredJSON(null=True)
    progress = StoredJSON(null=True)
    details = StoredJSON(null=True)
    result_ref = models.TextField(null=True)

    class Meta(ReadOnlyModel.Meta):
        db_table = '"holdfast"."attempts"'
        ordering = ("run", "number")

    def __str__(self) -> str:
        return f"{self.run_id} attempt {self.number}"

    error_class = _member("error", "class")
    error_message = _member("error", "message")
    traceback = _member("error", "traceback")
    ray_job_id = _member("details", "ray_job_id")
    ray_submission_id = _member("details", "ray_submission_id")
    ray_actor_id = _member("details", "ray_actor_id")
    ray_address = _member("details", "ray_address")


class Worker(ReadOnlyModel):
    """A worker process; each start has a new id."""

    id = models.UUIDField(primary_key=True)
    name = models.TextField()
    hostname = models.TextField()
    pid = models.IntegerField()
    executor = models.TextField()
    version = models.TextField()
    slots = models.IntegerField()
    queues = TextList(null=True)
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    stopped_at = models.DateTimeField(null=True)
    drain_requested_at = models.DateTimeField(null=True)
    tasks_completed = models.BigIntegerField()
    tasks_failed = models.BigIntegerField()

    class Meta(ReadOnlyModel.Meta):
        db_table = '"holdfast"."workers"'
        ordering = ("-started_at",)

    def __str__(self) -> str:
        return f"{self.name} {self.id}"


class Job(ReadOnlyModel):
    """A named set of runs that ends together."""

    id = models.UUIDField(primary_key=True)
    name = models.TextField()
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    outcome = models.TextField(null=True)

    class Meta(ReadOnlyModel.Meta):
        db_table = '"holdfast"."jobs"'
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"{self.name} {self.id}"


class Event(ReadOnlyModel):
    """Something that happened to a run and that no other row records."""

    pk = models.CompositePrimaryKey("run", "at", "type")
    run = models.ForeignKey(Run, models.DO_NOTHING, related_name="events", db_constraint=False)
    at = models.DateTimeField()
    attempt = models.IntegerField()
    type = models.TextField()
    reason = models.TextField(null=True)
    data = StoredJSON(null=True)

    class Meta(ReadOnlyModel.Meta):
        db_table = '"holdfast"."events"'
        ordering = ("run", "at")

    def __str__(self) -> str:
        return f"{self.run_id} {self.type}"


class Queue(ReadOnlyModel):
    """A queue that has been paused or limited. Queues need no row to work."""

    name = models.TextField(primary_key=True)
    paused_at = models.DateTimeField(null=True)
    paused_by = models.TextField(null=True)
    pause_reason = models.TextField(null=True)

    class Meta(ReadOnlyModel.Meta):
        db_table = '"holdfast"."queues"'
        ordering = ("name",)
        permissions = (("pause_queue", "Can pause and resume queues"),)

    def __str__(self) -> str:
        return str(self.name)
