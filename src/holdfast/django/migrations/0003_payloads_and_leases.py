"""Holdfast's tables, up to the index of deduplicating runs and leases that can be taken over."""

from __future__ import annotations

from django.db import migrations

from holdfast.django.migrating import upgrade_to


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("holdfast", "0002_models")]
    operations = [migrations.RunPython(upgrade_to("0007"), elidable=False)]
