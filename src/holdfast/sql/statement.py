"""SQL as a value, and operations as generators of such values.

An operation yields statements and receives rows. It never begins or commits, never reads a clock, randomness or the
environment, and never catches a database error: the driver owns the connection and the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Generic, LiteralString, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

Row = tuple[Any, ...]
Rows = Sequence[Row]


@dataclass(frozen=True, slots=True)
class Statement(Generic[T]):
    """One SQL statement with its parameters and the decoder of its rows. A single statement is also an operation.

    `together` means that this statement and all that follow in its operation must share a transaction; earlier ones may
    commit by themselves. `pipelined` means that the operation does not use the rows of this statement until it receives
    those of a later statement that is not pipelined. So a driver may send all of them before it reads a response, and
    add the rows then.
    """

    sql: LiteralString
    params: Mapping[str, object]
    decode: Callable[[Rows], T]
    together: bool = False
    pipelined: bool = False

    def __iter__(self) -> Generator[Statement[Any], Rows, T]:
        return self.decode((yield self))


Op = Generator[Statement[Any], Rows, T]


def as_operation(make: Callable[P, Statement[T]]) -> Callable[P, Op[T]]:
    """Turn a function that returns a statement into one that returns an operation with only this statement."""

    @wraps(make)
    def operation(*args: P.args, **kwargs: P.kwargs) -> Op[T]:
        return iter(make(*args, **kwargs))

    return operation


def rows(found: Rows) -> Rows:
    return found


def nothing(found: Rows) -> None:
    return None


def count(found: Rows) -> int:
    """The single number that the statement returns."""
    return int(found[0][0])


def first(decode: Callable[[Row], T]) -> Callable[[Rows], T | None]:
    def decode_first(found: Rows) -> T | None:
        return decode(found[0]) if found else None

    return decode_first


def each(decode: Callable[[Row], T]) -> Callable[[Rows], list[T]]:
    def decode_each(found: Rows) -> list[T]:
        return [decode(row) for row in found]

    return decode_each


# Each array is passed as a literal in one text parameter: every driver can bind a string, and joining strings is many
# times faster than having a driver adapt a thousand elements.


def plain_array(items: Iterable[object]) -> str:
    """An array literal of values that need no quoting: ids, numbers, hex digits; None becomes null."""
    items = list(items)
    if None in items:
        items = ["null" if item is None else item for item in items]
    return "{" + ",".join(map(str, items)) + "}"


def id_array(ids: Iterable[str]) -> str:
    """An array literal of ids."""
    return "{" + ",".join(ids) + "}"


def seconds_array(items: Iterable[float | None]) -> str:
    """An array literal of durations in seconds, to the microsecond, which is how times are stored; None becomes null.

    Formatting all digits of a float would take three times as long.
    """
    return "{" + ",".join(["null" if item is None else f"{item:.6f}" for item in items]) + "}"


def text_array(items: Iterable[str | None]) -> str:
    """An array literal of arbitrary texts; None becomes null."""
    return "{" + ",".join(["null" if item is None else _quoted(item) for item in items]) + "}"


def _quoted(text: str) -> str:
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    return '"' + text.replace('"', '\\"') + '"'
