"""Fields for column types that Django's own fields cannot read, and the base of read-only models."""

from __future__ import annotations

from typing import Any, NoReturn

from django.db import models


class StoredJSON(models.JSONField):
    """A column of the type json, which psycopg decodes by itself."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return value

    def db_type(self, connection: Any) -> str:
        return "json"


class TextList(models.Field):
    """A column of the type text[]."""

    def db_type(self, connection: Any) -> str:
        return "text[]"


class ReadOnlyError(TypeError):
    """Holdfast's tables are changed only through its operations."""


def refuse(*args: Any, **kwargs: Any) -> NoReturn:
    raise ReadOnlyError(
        "Holdfast's models are read-only: use a task's enqueue(), holdfast.django.cancel() or holdfast.django.retry()"
    )


class ReadOnlyQuerySet(models.QuerySet):
    create = bulk_create = update = bulk_update = delete = get_or_create = update_or_create = refuse


class ReadOnlyModel(models.Model):
    """Rows that the ORM only reads."""

    objects = ReadOnlyQuerySet.as_manager()

    class Meta:
        abstract = True
        managed = False
        default_permissions = ("view",)

    save = delete = save_base = refuse
