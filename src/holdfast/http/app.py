"""The application factory."""

from __future__ import annotations

from flask import Flask

from holdfast.domain.tasks import load_modules
from holdfast.http import guard, problems
from holdfast.http.meters import Meters
from holdfast.http.nouns import health, history, meta, metrics, outcomes, queues, runs, summary, tasks, workers
from holdfast.http.openapi import build
from holdfast.http.routes import Noun
from holdfast.http.service import EXTENSION, Service
from holdfast.settings import Settings, load

NOUNS: list[Noun] = [
    runs.NOUN,
    outcomes.NOUN,
    history.NOUN,
    queues.NOUN,
    workers.NOUN,
    tasks.NOUN,
    summary.NOUN,
    health.NOUN,
    metrics.NOUN,
    meta.NOUN,
]


def create_app(settings: Settings | None = None) -> Flask:
    """The WSGI application. It opens no connection before the first request, so a server may fork after it."""
    settings = settings or load()
    load_modules(("holdfast.tasks", *settings.tasks))
    app = Flask("holdfast", static_folder=None)
    app.url_map.merge_slashes = False
    service = Service(settings)
    meters = Meters(service)
    app.extensions[EXTENSION] = service
    app.extensions["holdfast_meters"] = meters
    app.extensions["holdfast_openapi"] = build(NOUNS, settings)
    problems.install(app)
    guard.install(app, service, NOUNS, meters)
    for noun in NOUNS:
        app.register_blueprint(noun.blueprint())
    return app
