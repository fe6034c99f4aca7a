"""The two loops that send an operation's statements to a database and pass the rows back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from holdfast.sql.statement import Op, Rows, Statement

T = TypeVar("T")

Execute = Callable[[Statement[Any]], Rows]
ExecuteAsync = Callable[[Statement[Any]], Awaitable[Rows]]


def drive(op: Op[T], execute: Execute) -> T:
    """Run an operation. A database error is raised at its yield, so the traceback names the operation's line."""
    resume: Callable[[], Statement[Any]] = partial(next, op)
    while True:
        try:
            statement = resume()
        except StopIteration as done:
            result: T = done.value
            return result
        try:
            resume = partial(op.send, execute(statement))
        except Exception as error:  # noqa: BLE001 - it is raised again, inside the operation
            resume = partial(op.throw, error)


async def drive_async(op: Op[T], execute: ExecuteAsync) -> T:
    """The asynchronous version of `drive`."""
    resume: Callable[[], Statement[Any]] = partial(next, op)
    while True:
        try:
            statement = resume()
        except StopIteration as done:
            result: T = done.value
            return result
        try:
            resume = partial(op.send, await execute(statement))
        except Exception as error:  # noqa: BLE001 - it is raised again, inside the operation
            resume = partial(op.throw, error)
