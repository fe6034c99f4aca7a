"""A client of the site: enqueues with Django's own `enqueue`, as a view would.

Either one by one, each committed before the next, or many at once to fill the queue.
"""

from __future__ import annotations

import django

from bench.programs.asking import chunks, serve


def main() -> None:
    django.setup()
    from django.db import transaction

    from bench.django_site.settings import APP
    from bench.django_site.tasks import noop

    def one(first: int, count: int) -> None:
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

    serve(one, bulk)


if __name__ == "__main__":
    main()
