"""Parameter values that are not JSON, written as JSON where the annotation says how they are read back.

A task that is annotated with `datetime` is given a datetime, whatever carried it there. So a caller may give one too:
it is written as pydantic writes it, and refused unless reading it back gives the caller's value. Equal values get equal
texts, because dedupe and keys compare texts:

- a datetime with a zone is written in UTC: the same instant in two zones is the same value, and comes back in UTC
- a Decimal is written without trailing zeros: 1.50 and 1.5 are the same value
- a set is written in the order of its members' texts

Pydantic is imported here, late, and only for parameters whose annotation is not plain JSON.
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
    """A value that its annotation does not account for."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def encode(adapter: Any, name: str, value: Any) -> Any:
    """Write the value of a parameter as JSON, by the pydantic type of its annotation. Raises NotEncodable."""
    options: dict[str, Any] = {"by_alias": True, "round_trip": True, "warnings": False}
    try:
        written = adapter.dump_python(value, mode="json", **options)
        return _normal(adapter.dump_python(value, mode="python", **options), written)
    except (ValueError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise NotEncodable(Problem(pointer([name]), f"cannot be written as JSON: {reason}")) from error


def _normal(value: Any, written: Any) -> Any:
    """The one text of equal values, instead of pydantic's; what the type itself writes in another way is left alone."""
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
    except OverflowError:  # the first and the last hours that there are
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
    """The first thing in a value that JSON has no form for, and where it is. A key stands for its object.

    What is nested too deeply to be stored, or contains itself, is refused elsewhere.
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
    """The first part of a value that does not come back as what it was: where it is, that part, and what it became."""
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
    if isinstance(value, datetime) and isinstance(
        back, datetime
    ):  # a local time that clocks skip equals no other, not even itself in UTC
        value, back = _in_utc(value), _in_utc(back)
    compared: Any = type(value).__eq__
    return None if compared is object.__eq__ or value == back else (path, value, back)


def _member(back: Any, key: Any, default: Any) -> Any:
    """What became of a member of an object: it may be a member still, or a field of a model."""
    if isinstance(back, Mapping):
        return back.get(key)
    return getattr(back, str(key), default)


def _fields(value: Any) -> dict[str, Any] | None:
    """The fields of a model or of a dataclass."""
    names = getattr(type(value), "model_fields", None)
    if names is None:
        names = [one.name for one in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else None
    return None if names is None else {name: getattr(value, name) for name in names if hasattr(value, name)}


def _first(found: Iterator[T | None]) -> T | None:
    return next((one for one in found if one is not None), None)


def suggested(value: Any) -> str | None:
    """The annotation that would account for a value; None if there is none."""
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
    """A type as one writes it in code."""
    if isinstance(hint, type) and not hasattr(hint, "__args__"):
        module = hint.__module__
        return hint.__qualname__ if module in ("builtins", "typing", "__main__") else f"{module}.{hint.__qualname__}"
    return str(hint).replace("typing.", "")
