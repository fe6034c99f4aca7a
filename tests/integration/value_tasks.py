"""Tasks whose parameters are of types that JSON does not have."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from holdfast import current_run, task


@dataclass
class Period:
    first: date
    last: date


class Invoice(BaseModel):
    id: UUID
    cents: Decimal
    period: Period


def described(*values: Any) -> list[str]:
    return [f"{type(value).__name__} {value!s}" for value in values]


@task("values.bill")
def bill(invoice: Invoice, at: datetime, to: UUID | None = None) -> list[str]:
    return described(invoice, invoice.period, at.isoformat(), to)


@task("values.bill_inline", executor="inline")
def bill_inline(invoice: Invoice, at: datetime) -> list[str]:
    return described(invoice, invoice.period, at.isoformat())


@task("values.parent")
def parent(task: str, at: datetime) -> str:
    """Submits a child with a value that is not JSON, and returns its id."""
    period = Period(date(2026, 1, 1), date(2026, 1, 31))
    return current_run().submit(task, {"invoice": Invoice(id=UUID(int=1), cents=Decimal(5), period=period), "at": at})


@task("values.parent_inline", executor="inline")
def parent_inline(task: str, at: datetime) -> str:
    return str(parent.fn(task, at))


@task("values.bill_slice")
def bill_slice(view: Any, invoice: Invoice, at: datetime) -> list[str]:
    return described(invoice, invoice.period, at.isoformat(), list(view.read()))
