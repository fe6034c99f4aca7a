"""The settings of the site. BENCH_BACKEND names the Tasks backend, BENCH_DATABASE the database's address."""

from __future__ import annotations

import os
from urllib.parse import parse_qs, unquote, urlsplit

BACKENDS = {
    "holdfast": ("holdfast.django", "holdfast.django.HoldfastBackend"),
    "django_tasks_db": ("django_tasks_db", "django_tasks_db.DatabaseBackend"),
}
APP, BACKEND = BACKENDS[os.environ["BENCH_BACKEND"]]
_url = urlsplit(os.environ["BENCH_DATABASE"])
_query = parse_qs(_url.query)

SECRET_KEY = "only for benchmarks"
USE_TZ = True
INSTALLED_APPS = [APP, "bench.django_site"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _url.path[1:],
        "USER": unquote(_url.username or _query.get("user", [""])[0]),
        "PASSWORD": unquote(_url.password or ""),
        "HOST": unquote(_url.hostname or _query.get("host", [""])[0]),
        "PORT": str(_url.port or _query.get("port", [""])[0]),
        "CONN_MAX_AGE": None,
    }
}
TASKS = {"default": {"BACKEND": BACKEND}}
# Neither side writes a line for each task.
LOGGING = {"version": 1, "loggers": {"django.tasks": {"level": "ERROR"}, "django_tasks_db": {"level": "ERROR"}}}
