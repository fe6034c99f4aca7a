"""A client of the site: enqueues with Django's own `enqueue`, as a view would.

Either one by one, each committed before the next or all in one transaction, or many at once to fill the queue.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import django

from bench.programs.asking import chunks, serve


def main() -> None:
    django.setup()
    from django.db import transaction

    from bench.django_site.settings import APP
    from bench.django_site.tasks import noop

    together = False

    def configure(command: dict[str, Any]) -> None:
        nonlocal together
        together = command.get("together", False)

    def one(first: int, count: int) -> None:
        with transaction.atomic() if together else nullcontext():
            for number in range(first, first + count):
                noop.enqueue(number)

    def bulk(first: int, count: int) -> None:
        for chunk in chunks(first, count):
            if APP == "holdfast.django":
                from holdfast.django import enqueue_many

                enqueue_many(noop, [((number,), {}) for number in chunk])
            else:
                with transaction.atomic():
                    one(chunk.start, len(chunk))

    serve(one, bulk, configure)


if __name__ == "__main__":
    main()
