from __future__ import annotations

from django.apps import AppConfig


class TestAppConfig(AppConfig):
    name = "tests.django.app"
    label = "app"

    def ready(self) -> None:
        from tests.django.app import receivers

        receivers.connect()
