"""Columns of types that Django's own fields do not read, and what makes a model read-only."""

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
    """Holdfast's tables change through its operations only."""


def refuse(*args: Any, **kwargs: Any) -> NoReturn:
    raise ReadOnlyError(
        "Holdfast's tables are read-only for the ORM: use holdfast.django.cancel, retry, and the tasks' enqueue"
    )


class ReadOnlyQuerySet(models.QuerySet):
    create = bulk_create = update = bulk_update = delete = get_or_create = update_or_create = refuse


class ReadOnlyModel(models.Model):
    """Rows that the ORM only reads."""

    objects = ReadOnlyQuerySet.as_manager()

    class Meta:
        abstract = True

    save = delete = save_base = refuse
