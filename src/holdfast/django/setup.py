"""The task module of a Django site: importing it sets Django up and registers the tasks of all installed apps.

Workers import it in each of their processes, both with `manage.py holdfast_worker` and with
`holdfast worker --tasks holdfast.django.setup` with DJANGO_SETTINGS_MODULE in the environment.
"""

from __future__ import annotations

import json
import os

import django
from django.apps import apps
from django.conf import ENVIRONMENT_VARIABLE, settings
from django.db import connections
from django.utils.module_loading import autodiscover_modules

from holdfast.django import announcing
from holdfast.django.performing import DATABASES_VARIABLE
from holdfast.domain.errors import ConfigurationError


def set_up() -> None:
    if not settings.configured and not os.environ.get(ENVIRONMENT_VARIABLE):
        raise ConfigurationError(
            f"{ENVIRONMENT_VARIABLE} is not set in this process, so the site's tasks cannot be found; set it in the "
            "environment of the worker, and of ray start on each Ray node"
        )
    if not apps.ready:
        django.setup()
    for alias, name in json.loads(os.environ.get(DATABASES_VARIABLE, "{}")).items():
        connections.settings[alias]["NAME"] = name
    autodiscover_modules("tasks")
    announcing.start()


set_up()
