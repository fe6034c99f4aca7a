"""Procedures: sequences of several transactions, or with work outside the database in between.

A procedure is a generator of steps: operations, each in its own transaction, and work outside the database. Like an
operation it is written once, and executed by blocking and asynchronous clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.drivers.drive import drive, drive_async
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

    def take(step: Step) -> Any:
        if isinstance(step, Elsewhere):
            return step.work()
        return ring(step.hints) if isinstance(step, Ring) else perform(step)

    steps: Any = procedure
    result: T = drive(steps, take)  # type: ignore[arg-type]
    return result


async def follow_async(
    procedure: Procedure[T],
    perform: Callable[[Callable[[], Op[Any]]], Awaitable[Any]],
    ring: Callable[[list[str]], None] = no_bell,
) -> T:
    """Do the same asynchronously; work outside the database is done in a thread."""

    async def take(step: Step) -> Any:
        if isinstance(step, Elsewhere):
            return await asyncio.to_thread(step.work)
        return ring(step.hints) if isinstance(step, Ring) else await perform(step)

    steps: Any = procedure
    result: T = await drive_async(steps, take)  # type: ignore[arg-type]
    return result
