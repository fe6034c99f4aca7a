"""Write parameter values that are not JSON as JSON, if the annotation determines how to read them back.

A task whose parameter is annotated with `datetime` receives a datetime, however the run was submitted. So a caller may
pass one too: pydantic serializes it, and the value is rejected unless reading it back gives the caller's value. Equal
values get equal texts, because dedupe and keys compare texts:

- a datetime with a time zone is written in UTC: the same instant in two zones is the same value, and is read in UTC
- a Decimal is written without trailing zeros: 1.50 and 1.5 are the same value
- a set is written in the order of its members' texts

Pydantic is imported lazily, and only for parameters whose annotation is not plain JSON.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, TypeVar

from holdfast.domain.canonical import MAX_DEPTH, canonicalize, pointer
from holdfast.domain.errors import Problem

_JSON = (str, int, float, bool, type(None))
_SETS = (set, frozenset)
Path = tuple[str | int, ...]
T = TypeVar("T")


class NotEncodable(Exception):
    """The value does not match its annotation."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def encode(adapter: Any, name: str, value: Any) -> Any:
    """Return the value of a parameter as JSON, using the pydantic type of its annotation. Raise NotEncodable."""
    options: dict[str, Any] = {"by_alias": True, "round_trip": True, "warnings": False}
    try:
        written = adapter.dump_python(value, mode="json", **options)
        return _normal(adapter.dump_python(value, mode="python", **options), written)
    except (ValueError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise NotEncodable(Problem(pointer([name]), f"cannot be written as JSON: {reason}")) from error


def _normal(value: Any, written: Any) -> Any:
    """Return the canonical text of a value instead of pydantic's, unless the type has its own serialization."""
    if isinstance(value, Mapping) and isinstance(written, dict) and len(value) == len(written):
        return {key: _normal(*pair) for key, *pair in zip(written, value.values(), written.values(), strict=True)}
    if isinstance(value, list | tuple) and isinstance(written, list) and len(value) == len(written):
        return [_normal(*pair) for pair in zip(value, written, strict=True)]
    if isinstance(value, datetime | Decimal) or (isinstance(value, _SETS) and isinstance(written, list)):
        from pydantic_core import to_jsonable_python

        if isinstance(value, _SETS):
            return sorted(
                (_normal(one, to_jsonable_python(one)) for one in value), key=lambda one: canonicalize(one)[0]
            )
        if written == to_jsonable_python(value):
            return to_jsonable_python(_in_utc(value)) if isinstance(value, datetime) else _shortest(value)
    return written


def _in_utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        return value
    try:
        return value.astimezone(UTC)
    except OverflowError:  # within hours of the first or the last possible time
        return value


def _shortest(value: Decimal) -> str:
    if not value.is_finite():
        return str(value)
    if not value:
        return "0"
    sign, digits, exponent = value.as_tuple()
    kept = "".join(map(str, digits)).rstrip("0")
    stripped = Decimal((sign, tuple(map(int, kept)), int(exponent) + len(digits) - len(kept)))
    return f"{stripped:f}" if abs(stripped.adjusted()) < 40 else str(stripped)


def foreign(value: Any, path: Path) -> tuple[Path, Any] | None:
    """Return the first part of a value that is not JSON, and its path. A key counts as its object.

    Values that are nested too deeply or contain themselves are rejected elsewhere.
    """
    if len(path) > MAX_DEPTH:
        return None
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            return path, value
        return _first(foreign(one, (*path, key)) for key, one in value.items())
    if isinstance(value, list | tuple):
        return _first(foreign(one, (*path, index)) for index, one in enumerate(value))
    return None if isinstance(value, _JSON) else (path, value)


def changed(value: Any, back: Any, path: Path) -> tuple[Path, Any, Any] | None:
    """Return the first part of a value that is not read back unchanged: its path, the part, and what it became."""
    if value is None or (isinstance(value, _JSON) and not isinstance(value, Enum)):
        return (path, value, back) if value is not None and back is None else None
    if isinstance(value, Mapping):
        return _first(changed(one, _member(back, key, one), (*path, str(key))) for key, one in value.items())
    if isinstance(value, list | tuple) and isinstance(back, list | tuple) and len(back) == len(value):
        pairs = enumerate(zip(value, back, strict=True))
        return _first(changed(one, other, (*path, index)) for index, (one, other) in pairs)
    if not (isinstance(back, type(value)) or isinstance(value, type(back))):
        return path, value, back
    fields = _fields(value)
    if fields is not None:
        return _first(changed(one, getattr(back, name, None), (*path, name)) for name, one in fields.items())
    # A local time that a clock change skips equals no other time, not even itself in UTC.
    if isinstance(value, datetime) and isinstance(back, datetime):
        value, back = _in_utc(value), _in_utc(back)
    compared: Any = type(value).__eq__
    return None if compared is object.__eq__ or value == back else (path, value, back)


def _member(back: Any, key: Any, default: Any) -> Any:
    """Return the member of an object after reading it back: a member, or a field of a model."""
    if isinstance(back, Mapping):
        return back.get(key)
    return getattr(back, str(key), default)


def _fields(value: Any) -> dict[str, Any] | None:
    """Return the fields of a model or dataclass by name, or None for other values."""
    names = getattr(type(value), "model_fields", None)
    if names is None:
        names = [one.name for one in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else None
    return None if names is None else {name: getattr(value, name) for name in names if hasattr(value, name)}


def _first(found: Iterator[T | None]) -> T | None:
    return next((one for one in found if one is not None), None)


def suggested(value: Any) -> str | None:
    """Return an annotation that matches the value; None if there is none."""
    if isinstance(value, dict):
        inner = _first(suggested(one) for one in value.values() if foreign(one, ()))
        return f"dict[str, {inner}]" if inner else None
    if isinstance(value, list | tuple):
        inner = _first(suggested(one) for one in value if foreign(one, ()))
        return f"list[{inner}]" if inner else None
    from pydantic import PydanticUserError, TypeAdapter

    try:
        TypeAdapter(type(value))
    except PydanticUserError:
        return None
    return type_name(type(value))


def type_name(hint: Any) -> str:
    """Return the type as it is written in code."""
    if isinstance(hint, type) and not hasattr(hint, "__args__"):
        module = hint.__module__
        return hint.__qualname__ if module in ("builtins", "typing", "__main__") else f"{module}.{hint.__qualname__}"
    return str(hint).replace("typing.", "")
