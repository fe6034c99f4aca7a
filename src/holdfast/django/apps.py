"""The Django app: `INSTALLED_APPS += ["holdfast.django"]`."""

from __future__ import annotations

from django.apps import AppConfig


class HoldfastConfig(AppConfig):
    name = "holdfast.django"
    label = "holdfast"
    verbose_name = "Holdfast"
    default_auto_field = "django.db.models.BigAutoField"
