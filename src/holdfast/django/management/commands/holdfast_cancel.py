"""`manage.py holdfast_cancel ID ...`: cancel runs."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from holdfast.django.calls import cancel
from holdfast.django.management.choosing import add_backend, chosen_backend
from holdfast.domain.errors import HoldfastError


class Command(BaseCommand):
    help = "Cancel runs: those that have not started end immediately, the others are asked to stop."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("ids", nargs="+", metavar="ID", help="the id of a task result")
        parser.add_argument("--reason", default="cancelled by manage.py holdfast_cancel")
        add_backend(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        backend = chosen_backend(options["backend"])
        refused = 0
        for one in options["ids"]:
            try:
                run = cancel(one, backend=backend.alias, reason=options["reason"])
            except HoldfastError as error:
                refused += 1
                self.stderr.write(str(error))
            else:
                outcome = "cancelled" if run.status == "CANCELLED" else "asked to stop"
                self.stdout.write(f"{run.id} {outcome}")
        if refused:
            raise CommandError(f"{refused} of {len(options['ids'])} could not be cancelled.")
