"""Shapes of documents: one table of fields for each kind of record, used to write, read and describe it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from holdfast.domain.states import Status
from holdfast.domain.times import written

R = TypeVar("R")

Part = dict[str, Any]


def nullable(schema: Part) -> Part:
    if "type" in schema and isinstance(schema["type"], str):
        return schema | {"type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def record(about: str, fields: Mapping[str, Part]) -> Part:
    """The schema of an object with exactly these fields, all required."""
    return {
        "type": "object",
        "description": about,
        "required": list(fields),
        "properties": dict(fields),
        "additionalProperties": False,
    }


TEXT: Part = {"type": "string"}
TEXTS: Part = {"type": "array", "items": TEXT}
WHOLE: Part = {"type": "integer"}
NUMBER: Part = {"type": "number"}
COUNT: Part = {"type": "integer", "minimum": 0}
ID: Part = {"type": "string", "format": "uuid"}
TIME: Part = {"type": "string", "format": "date-time"}
OBJECT: Part = {"type": "object"}
MAYBE_TEXT, MAYBE_ID, MAYBE_TIME, MAYBE_OBJECT = map(nullable, (TEXT, ID, TIME, OBJECT))


class Field(NamedTuple):
    """A field of a document: its schema, and the name of the record's attribute if it differs from the field's.

    `write` and `read` convert its value. A field with `derive` is computed from the record and is not read back.
    """

    schema: Part
    attribute: str | None = None
    write: Callable[[Any], Any] | None = None
    read: Callable[[Any], Any] | None = None
    derive: Callable[[Any], Any] | None = None


STATUS = Field({"type": "string", "enum": [str(status) for status in Status]}, write=str, read=Status)


class Shape(Generic[R]):
    """The document of one kind of record. In `fields`, a plain schema is a field named like its attribute."""

    def __init__(self, kind: Callable[..., R], about: str, fields: Mapping[str, Field | Part], **unsent: Any) -> None:
        """`unsent` holds values for required attributes that are not in the document."""
        self._kind = kind
        self._unsent = unsent
        table = {name: field if isinstance(field, Field) else _field(field) for name, field in fields.items()}
        self.schema = record(about, {name: field.schema for name, field in table.items()})
        self._writers = [
            (name, field.derive or attrgetter(field.attribute or name), field.write) for name, field in table.items()
        ]
        self._readers = [
            (name, field.attribute or name, field.read, not _is_nullable(field.schema))
            for name, field in table.items()
            if field.derive is None
        ]

    def __call__(self, record: R) -> dict[str, Any]:
        """The document of a record."""
        return {name: get(record) if write is None else write(get(record)) for name, get, write in self._writers}

    def read(self, document: Mapping[str, Any]) -> R:
        """The record of a document. A nullable field that a server of another version does not send is None."""
        values = dict(self._unsent)
        for name, attribute, read, required in self._readers:
            value = document[name] if required else document.get(name)
            values[attribute] = value if read is None or value is None else read(value)
        return self._kind(**values)


def _field(schema: Part) -> Field:
    is_time = schema in (TIME, MAYBE_TIME)
    return Field(schema, write=written, read=datetime.fromisoformat) if is_time else Field(schema)


def _is_nullable(schema: Part) -> bool:
    return {"type": "null"} in schema.get("anyOf", ()) or "null" in schema.get("type", ())
