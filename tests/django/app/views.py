"""A view that defines its own task, which no `tasks` module imports."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse

from holdfast.django import task
from tests.django.app.models import Note


@task
def receipt(order: int) -> str:
    return f"receipt for {order}"


def order(request: HttpRequest) -> HttpResponse:
    made: Any = receipt.enqueue(7)
    Note.objects.create(text=made.id)
    return HttpResponse(made.id)


def order_and_fail(request: HttpRequest) -> HttpResponse:
    order(request)
    raise RuntimeError("after the order")


def order_after_commit(request: HttpRequest) -> HttpResponse:
    transaction.on_commit(partial(receipt.enqueue, 7))
    return HttpResponse(Note.objects.create(text="ordered").pk)
