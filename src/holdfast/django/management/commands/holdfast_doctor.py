"""`manage.py holdfast_doctor`: check the database and the runs, and report problems."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

import psycopg
from django.core.management.base import BaseCommand, CommandError

from holdfast import ops
from holdfast.django import databases
from holdfast.django.management.choosing import add_backend, chosen_backend, in_django
from holdfast.domain.errors import HoldfastError
from holdfast.drivers import sessions
from holdfast.drivers.psycopg import OwnConnection
from holdfast.ops.queues import list_queues
from holdfast.schema import migrate


class Command(BaseCommand):
    help = "Check Holdfast's configuration, tables and workers, and show what is waiting."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_backend(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        backend = chosen_backend(options["backend"])
        wrong = list(backend.check())
        for message in wrong:
            self.stderr.write(f"FAIL  configuration  {message}")
        wrong += self._database(backend.database)
        if wrong:
            raise CommandError(f"Problems found: {len(wrong)}.")

    def _database(self, alias: str) -> list[str]:
        try:
            with OwnConnection.connect(databases.url_of(alias), session=sessions.CLIENT) as connection:
                migrate.require(connection)
                self.stdout.write(f"ok    schema         {migrate.current(connection)}")
        except (HoldfastError, psycopg.Error) as error:
            self.stderr.write(f"FAIL  schema         {in_django(error, alias)}{_advice(error)}")
            return [str(error)]
        workers = [one for one in databases.run(alias, ops.list_workers()) if one.status != "stopped"]
        if workers:
            self.stdout.write(f"ok    workers        {len(workers)} alive")
        else:
            self.stdout.write("warn  workers        no worker is alive; start one: manage.py holdfast_worker")
        for queue in databases.run(alias, list_queues()):
            paused = f", paused by {queue.paused_by}" if queue.paused_at else ""
            counts = f"{queue.ready} ready, {queue.waiting} waiting, {queue.running} running"
            self.stdout.write(f"ok    queue          {queue.name}: {counts}{paused}")
        return []


def _advice(error: BaseException) -> str:
    if not isinstance(error, psycopg.errors.InsufficientPrivilege):
        return ""
    return "; as the owner of the tables, run what this command prints: holdfast db grants client ROLE"
