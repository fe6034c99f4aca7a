"""The settings of the example. The database is DATABASE_URL, which run.py sets to a server of its own."""

from __future__ import annotations

import os
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

BASE_DIR = Path(__file__).parent
SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY", "for trying out on this machine only")
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "urls"
USE_TZ = True
TIME_ZONE = "UTC"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "holdfast.django",
    "forecasts",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

_parts = conninfo_to_dict(os.environ["DATABASE_URL"])
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _parts.get("dbname", "postgres"),
        "USER": _parts.get("user", ""),
        "PASSWORD": _parts.get("password", ""),
        "HOST": _parts.get("host", ""),
        "PORT": str(_parts.get("port", "")),
    }
}

TASKS = {
    "default": {
        "BACKEND": "holdfast.django.HoldfastBackend",
        "QUEUES": ["default", "models"],
        "OPTIONS": {"QUEUE_RETRY": {"models": {"max_attempts": 3, "delays": [5, 20, 60]}}},
    }
}
