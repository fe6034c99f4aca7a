"""The unmanaged models that read Holdfast's tables. Django creates no tables for them."""

from __future__ import annotations

from django.db import migrations, models

import holdfast.django.fields


class Migration(migrations.Migration):
    dependencies = [
        ("holdfast", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Attempt",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "run", "number", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("number", models.IntegerField()),
                ("status", models.TextField()),
                ("outcome", models.TextField(null=True)),
                ("worker_id", models.UUIDField(null=True)),
                ("executor", models.TextField(null=True)),
                ("submitted_at", models.DateTimeField(db_column="claimed_at", null=True)),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField()),
                ("exit_code", models.IntegerField(null=True)),
                ("reason", models.TextField(null=True)),
                ("error", holdfast.django.fields.StoredJSON(null=True)),
                ("progress", holdfast.django.fields.StoredJSON(null=True)),
                ("details", holdfast.django.fields.StoredJSON(null=True)),
                ("result_ref", models.TextField(null=True)),
            ],
            options={
                "db_table": '"holdfast"."attempts"',
                "ordering": ("run", "number"),
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Event",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "run", "at", "type", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("at", models.DateTimeField()),
                ("attempt", models.IntegerField()),
                ("type", models.TextField()),
                ("reason", models.TextField(null=True)),
                ("data", holdfast.django.fields.StoredJSON(null=True)),
            ],
            options={
                "db_table": '"holdfast"."events"',
                "ordering": ("run", "at"),
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Job",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("name", models.TextField()),
                ("created_at", models.DateTimeField()),
                ("finished_at", models.DateTimeField(null=True)),
                ("outcome", models.TextField(null=True)),
            ],
            options={
                "db_table": '"holdfast"."jobs"',
                "ordering": ("-id",),
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Queue",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("paused_at", models.DateTimeField(null=True)),
                ("paused_by", models.TextField(null=True)),
                ("pause_reason", models.TextField(null=True)),
            ],
            options={
                "db_table": '"holdfast"."queues"',
                "ordering": ("name",),
                "permissions": (("pause_queue", "Can pause and resume queues"),),
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Run",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("task", models.TextField()),
                ("status", models.TextField()),
                ("queue", models.TextField()),
                ("priority", models.SmallIntegerField()),
                ("parameters", holdfast.django.fields.StoredJSON()),
                ("payload_hash", models.TextField()),
                ("created_at", models.DateTimeField()),
                ("run_after", models.DateTimeField(null=True)),
                ("due_at", models.DateTimeField(null=True)),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("attempt_count", models.IntegerField()),
                ("max_attempts", models.IntegerField()),
                ("reason", models.TextField(null=True)),
                ("progress", holdfast.django.fields.StoredJSON(null=True)),
                ("error", holdfast.django.fields.StoredJSON(null=True)),
                ("result_ref", models.TextField(null=True)),
                ("lease_owner", models.UUIDField(null=True)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("cancel_requested_at", models.DateTimeField(null=True)),
                ("job_id", models.UUIDField(null=True)),
                ("parent_id", models.UUIDField(null=True)),
                ("concurrency_key", models.TextField(null=True)),
                ("submitted_by", models.TextField(null=True)),
                ("tags", holdfast.django.fields.TextList(null=True)),
            ],
            options={
                "db_table": '"holdfast"."run_status"',
                "ordering": ("-id",),
                "permissions": (
                    ("cancel_run", "Can cancel runs"),
                    ("retry_run", "Can retry runs"),
                    ("view_secrets", "Can see arguments and errors unmasked"),
                ),
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("name", models.TextField()),
                ("hostname", models.TextField()),
                ("pid", models.IntegerField()),
                ("executor", models.TextField()),
                ("version", models.TextField()),
                ("slots", models.IntegerField()),
                ("queues", holdfast.django.fields.TextList(null=True)),
                ("started_at", models.DateTimeField()),
                ("heartbeat_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("stopped_at", models.DateTimeField(null=True)),
                ("drain_requested_at", models.DateTimeField(null=True)),
                ("tasks_completed", models.BigIntegerField()),
                ("tasks_failed", models.BigIntegerField()),
            ],
            options={
                "db_table": '"holdfast"."workers"',
                "ordering": ("-started_at",),
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
    ]
