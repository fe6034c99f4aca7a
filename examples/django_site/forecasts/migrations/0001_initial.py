from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import migrations, models

from holdfast.tasks.forecast import REGIONS, SCENARIOS


class Migration(migrations.Migration):
    initial = True
    dependencies: list[tuple[str, str]] = []
    operations = [
        migrations.CreateModel(
            name="ScenarioRequest",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("scenario", models.CharField(max_length=40, choices=[(name, name) for name in SCENARIOS])),
                ("region", models.CharField(max_length=2, choices=[(name, name) for name in REGIONS])),
                (
                    "horizon_months",
                    models.PositiveIntegerField(default=24, validators=[MinValueValidator(1), MaxValueValidator(600)]),
                ),
                (
                    "paths",
                    models.PositiveIntegerField(
                        default=2000, validators=[MinValueValidator(1), MaxValueValidator(200_000)]
                    ),
                ),
                ("result_id", models.CharField(max_length=63, editable=False)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={"ordering": ("-created_at",)},
        )
    ]
