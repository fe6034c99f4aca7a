from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from holdfast.tasks.forecast import REGIONS, SCENARIOS


class ScenarioRequest(models.Model):
    """What a visitor requested. `result_id` is the id of the task result, and of the run."""

    scenario = models.CharField(max_length=40, choices=[(name, name) for name in SCENARIOS])
    region = models.CharField(max_length=2, choices=[(name, name) for name in REGIONS])
    horizon_months = models.PositiveIntegerField(default=24, validators=[MinValueValidator(1), MaxValueValidator(600)])
    paths = models.PositiveIntegerField(default=2000, validators=[MinValueValidator(1), MaxValueValidator(200_000)])
    result_id = models.CharField(max_length=63, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("-created_at",)
