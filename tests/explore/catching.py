"""How a mutant is detected: by exploring a meeting, or by a named test of another suite, run without its guard."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import psycopg
import pytest

from holdfast.sql.statement import Op
from holdfast.testing import clock
from tests.conformance.drivers import Psycopg
from tests.explorer import search
from tests.explorer.mutation import SCHEMA, SQL, DoesNotApply, Mutation, Rewriting, mutated, rewritten
from tests.explorer.schedule import parse
from tests.explorer.stage import Crashes, Stage
from tests.explorer.wire import unchanged
from tests.integration import worker_support
from tests.integration.wire import Wire
from tests.timeline import Timeline

T = TypeVar("T")

# If the explorer has found nothing by then, it will not find anything.
AT_MOST = 1500
# How many schedules are checked together if the first violation is enough.
FEW = 5
# Without a guard, a test may wait for something that never happens: several leases of three seconds are long enough.
DEADLINE = 10.0


@dataclass(frozen=True, slots=True)
class Explored:
    """Detected by exploring this meeting, with a crash at every point if `crashes` is set."""

    meeting: str
    crashes: bool = False
    at_most: int = AT_MOST

    def complaints(self, url: str, rewrite: Callable[[str], str], batch: int = FEW) -> list[str]:
        stage = Stage(url, rewrite, batch)
        play = partial(stage.play, parse(self.meeting + ":").meeting, Crashes.BRIEF if self.crashes else Crashes.NONE)
        try:
            for _ in islice(search.every(play), self.at_most):
                if stage.violations:
                    break
            stage.judge()
            return [str(violation) for violation in stage.violations]
        finally:
            stage.close()


@dataclass(frozen=True, slots=True)
class ByTest:
    """Detected by a test of another suite: `module::test`, with the values of its parameters."""

    test: str
    arguments: tuple[tuple[str, Any], ...] = ()

    def complaints(self, url: str, rewrite: Callable[[str], str]) -> list[str]:
        module, _, name = self.test.partition("::")
        test = getattr(import_module(module), name)
        with (
            psycopg.connect(url, autocommit=True) as connection,
            _Rewriting(url, rewrite) as driver,
            ExitStack() as stack,
        ):
            fixtures: dict[str, Callable[[], Any]] = {
                "timeline": lambda: Timeline(driver, connection),
                "waiters": lambda: import_module(module).Waiting(Timeline(driver, connection), connection),
                "stage": lambda: stack.enter_context(closing(_stage(url, stack))),
                "rarely_renewing": lambda: stack.enter_context(
                    closing(_stage(url, stack, **import_module(module).RARELY_RENEWING))
                ),
                "driver": lambda: driver,
                "connection": lambda: connection,
                "database_url": lambda: url,
                "month": lambda: import_module(module).make_month(connection),
                "tmp_path": lambda: Path(stack.enter_context(TemporaryDirectory())),
                "wire": lambda: stack.enter_context(closing(Wire(url))),
            }
            given = dict(self.arguments)
            wanted = inspect.signature(test).parameters
            arguments = {name: given[name] if name in given else fixtures[name]() for name in wanted}
            try:
                test(**arguments)
            except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - any error counts as detected
                return [f"{name}: {type(error).__name__}: {str(error).partition(chr(10))[0]}"]
        return []


def _stage(url: str, stack: ExitStack, **settings: Any) -> worker_support.Stage:
    return worker_support.Stage(url, Path(stack.enter_context(TemporaryDirectory())), **settings)


class _Rewriting(Psycopg):
    def __init__(self, url: str, rewrite: Callable[[str], str]) -> None:
        super().__init__(url)
        self._rewrite = rewrite

    def perform(self, make_op: Callable[[], Op[T]]) -> T:
        return super().perform(rewritten(make_op, self._rewrite))

    @contextmanager
    def borrow(self) -> Iterator[Callable[[Op[Any]], Any]]:
        with super().borrow() as run:
            yield lambda op: run(rewritten(lambda: op, self._rewrite)())


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mutation, and what detects it."""

    mutation: Mutation
    caught_by: Explored | ByTest

    def complaints(self, url: str) -> list[str]:
        """Return the detected violations on this database, which has the mutated schema if the schema is mutated."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(worker_support, "DEADLINE", DEADLINE)
            return self._complaints(url)

    def _complaints(self, url: str) -> list[str]:
        if self.mutation.where == SCHEMA:
            return self.caught_by.complaints(url, unchanged)
        if self.mutation.where == SQL:
            rewriting = Rewriting(self.mutation)
            found = self.caught_by.complaints(url, rewriting)
            if not rewriting.changed:
                raise DoesNotApply(f"{self.mutation.name}: no statement had\n{self.mutation.old}")
            return found
        with mutated(self.mutation):
            return self.caught_by.complaints(url, unchanged)


def install_clock(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        clock.install(connection)
