"""Procedures: sequences of several transactions, or with work outside the database in between.

A procedure is a generator of steps: operations, each in its own transaction, and work outside the database. Like an
operation it is written once, and executed by blocking and asynchronous clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.sql.statement import Op

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Work outside the database that may take a long time: counting the rows of a dataset, loading a file."""

    work: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Ring:
    """Ring the doorbell with these hints."""

    hints: list[str]


Step = Callable[[], Op[Any]] | Elsewhere | Ring
Procedure = Generator[Step, Any, T]


def no_bell(hints: list[str]) -> None:
    """Used in place of a doorbell for procedures that send no hints."""


def follow(
    procedure: Procedure[T],
    perform: Callable[[Callable[[], Op[Any]]], Any],
    ring: Callable[[list[str]], None] = no_bell,
) -> T:
    """Run the steps in order. An error is raised inside the procedure, which may handle it."""
    try:
        step = next(procedure)
        while True:
            try:
                if isinstance(step, Ring):
                    ring(step.hints)
                    answer = None
                else:
                    answer = step.work() if isinstance(step, Elsewhere) else perform(step)
            except Exception as error:  # noqa: BLE001 - it is raised inside the procedure
                step = procedure.throw(error)
            else:
                step = procedure.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result


async def follow_async(
    procedure: Procedure[T],
    perform: Callable[[Callable[[], Op[Any]]], Awaitable[Any]],
    ring: Callable[[list[str]], None] = no_bell,
) -> T:
    """Do the same asynchronously; work outside the database is done in a thread."""
    try:
        step = next(procedure)
        while True:
            try:
                if isinstance(step, Ring):
                    ring(step.hints)
                    answer = None
                elif isinstance(step, Elsewhere):
                    answer = await asyncio.to_thread(step.work)
                else:
                    answer = await perform(step)
            except Exception as error:  # noqa: BLE001 - it is raised inside the procedure
                step = procedure.throw(error)
            else:
                step = procedure.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result
