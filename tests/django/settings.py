"""The settings of the test site; the environment names its database."""

from __future__ import annotations

import os

from psycopg.conninfo import conninfo_to_dict

DATABASE_VARIABLE = "DJANGO_TEST_DATABASE_URL"


def database(url: str) -> dict[str, object]:
    given = conninfo_to_dict(url)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    return {
        "ENGINE": "django.db.backends.postgresql",
        **{name: str(given.get(key) or "") for name, key in names.items()},
    }


SECRET_KEY = "only for tests"
USE_TZ = True
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "tests.django.urls"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "holdfast.django",
    "tests.django.app",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
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
STATIC_URL = "static/"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DATABASES = {"default": database(os.environ.get(DATABASE_VARIABLE, "dbname=not_set"))}
TASKS = {
    "default": {"BACKEND": "holdfast.django.HoldfastBackend", "QUEUES": ["default", "mail", "slow"]},
    "reports": {
        "BACKEND": "holdfast.django.HoldfastBackend",
        "QUEUES": [],
        "OPTIONS": {
            "RETRY": {"max_attempts": 2, "delays": [0]},
            "QUEUE_RETRY": {"patient": {"max_attempts": 5, "delays": [0]}},
        },
    },
}
