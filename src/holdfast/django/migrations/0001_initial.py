"""Holdfast's tables. Runs outside of Django's transaction: each SQL file has its own, and waits for no user's locks."""

from __future__ import annotations

from django.db import migrations

from holdfast.django.migrating import upgrade_to


class Migration(migrations.Migration):
    atomic = False
    initial = True
    dependencies: list[tuple[str, str]] = []
    operations = [migrations.RunPython(upgrade_to("0006"), elidable=False)]
