"""Operations on Django's own connection, in its transaction."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, TypeVar

from django.db import transaction

from holdfast.domain.errors import ConfigurationError
from holdfast.drivers.drive import drive
from holdfast.sql.statement import Op, Rows, Statement

T = TypeVar("T")


def run(connection: Any, op: Op[T]) -> T:
    """Run an operation on one of `django.db.connections`, in its current transaction.

    Outside `atomic()`, an operation with several statements gets a transaction.
    """
    if connection.vendor != "postgresql":
        raise ConfigurationError(
            f"Holdfast needs PostgreSQL, but the database {connection.alias!r} in DATABASES is {connection.vendor}; "
            'name another one in TASKS: "OPTIONS": {"DATABASE": alias}'
        )
    with ExitStack() as stack:
        cursor = stack.enter_context(connection.cursor())

        def execute(statement: Statement[Any]) -> Rows:
            if statement.together and not connection.in_atomic_block and connection.get_autocommit():
                stack.enter_context(transaction.atomic(using=connection.alias))
            cursor.execute(statement.sql, dict(statement.params))
            found: Rows = cursor.fetchall() if cursor.description is not None else ()
            return found

        return drive(op, execute)
