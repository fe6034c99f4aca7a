"""A view with a task of its own, which no module named tasks imports."""

from __future__ import annotations

from typing import Any

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
