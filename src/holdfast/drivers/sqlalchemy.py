"""Operations on a SQLAlchemy connection or session, in its transaction."""

from __future__ import annotations

from typing import Any, TypeVar

from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from holdfast.drivers.drive import drive
from holdfast.sql.statement import Op, Rows, Statement

T = TypeVar("T")


def run(connection: Connection | Session, op: Op[T]) -> T:
    """Drive an operation. A session is flushed first: what it holds back may be what the run is about."""
    if isinstance(connection, Session):
        connection.flush()
        connection = connection.connection()
    borrowed = connection

    def execute(statement: Statement[Any]) -> Rows:
        result = borrowed.exec_driver_sql(statement.sql, dict(statement.params))
        return [tuple(row) for row in result.fetchall()] if result.returns_rows else ()

    return drive(op, execute)
