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
from holdfast.sql import partitions

ROUNDS = 10_000


class Command(BaseCommand):
    help = (
        "Remove runs that ended long ago, by whole months: a month is dropped once all its runs are old enough. Runs "
        "that have not ended are kept. Workers then remove the results that are stored in files."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--min-age-days", type=int, help="the age at which runs are removed (default: HOLDFAST_RETENTION_DAYS)"
        )
        parser.add_argument(
            "--failed-min-age-days",
            type=int,
            help="the age for failed runs; a month is kept until both ages are reached",
        )
        parser.add_argument("--queue-name", default="*", help="only * is accepted: a month contains runs of all queues")
        parser.add_argument("--dry-run", action="store_true", help="show what would be removed, and remove nothing")
        add_backend(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        backend = chosen_backend(options["backend"])
        if options["queue_name"] != "*":
            raise CommandError("Runs are removed by whole months, for all queues at once: use --queue-name='*'.")
        age = self._age(options)
        try:
            if options["dry_run"]:
                self._show(databases.run(backend.database, iter(partitions.expired(age))))
            else:
                self.stdout.write(f"removed months: {', '.join(_prune(backend.database, age)) or 'none'}")
        except HoldfastError as error:
            raise CommandError(str(error)) from error

    def _age(self, options: dict[str, Any]) -> timedelta:
        given = options["min_age_days"]
        days = databases.settings().retention_days if given is None else given
        failed = options["failed_min_age_days"]
        for name, number in (("--min-age-days", days), ("--failed-min-age-days", failed)):
            if number is not None and number < 1:
                raise CommandError(f"{name} must be at least 1.")
        return timedelta(days=max(days, failed or 0))

    def _show(self, months: list[partitions.Month]) -> None:
        for month in months:
            self.stdout.write(f"would remove {month.name}: about {month.runs} runs")
        if not months:
            self.stdout.write("would remove nothing")


def _prune(database: str, age: timedelta) -> list[str]:
    months: list[str] = []
    for _ in range(ROUNDS):
        pruned = databases.run(database, ops.prune(age))
        months += pruned.months
        if not pruned.more:
            break
    return months
