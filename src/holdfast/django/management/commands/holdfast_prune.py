"""`manage.py holdfast_prune`: remove old runs. Workers do it by themselves; this is for other retentions."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from holdfast import ops
from holdfast.django import databases
from holdfast.django.management.choosing import add_backend, chosen_backend
from holdfast.domain.errors import HoldfastError

ROUNDS = 10_000


class Command(BaseCommand):
    help = (
        "Remove runs that ended long ago, by whole months: a month is dropped once all its runs are old enough. Runs "
        "that have not ended are kept. Results in files are removed by the workers afterwards."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--min-age-days", type=int, default=None, help="the age from which runs are removed (default: the setting)"
        )
        add_backend(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        backend = chosen_backend(options["backend"])
        given = options["min_age_days"]
        days = databases.settings().retention_days if given is None else given
        if days < 1:
            raise CommandError("--min-age-days must be at least 1.")
        months: list[str] = []
        try:
            for _ in range(ROUNDS):
                pruned = databases.run(backend.database, ops.prune(timedelta(days=days)))
                months += pruned.months
                if not pruned.more:
                    break
        except HoldfastError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"removed months: {', '.join(months) or 'none'}")
