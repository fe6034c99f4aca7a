"""Health: whether this process is alive, ready, and its dependencies healthy. Needs no token and reveals no secrets."""

from __future__ import annotations

from typing import Any

import psycopg

from holdfast.domain.errors import HoldfastError
from holdfast.http.answers import Answer, answer
from holdfast.http.call import Call
from holdfast.http.problems import KINDS, kind_of
from holdfast.http.routes import Noun, route
from holdfast.http.service import Service
from holdfast.verbs.openapi import RETRY_AFTER, ref, says

REDIS_SECONDS = 2.0


HEALTHY = {200: says("Everything is healthy.", ref("Health"))}
HEALTHY_OR_DOWN = HEALTHY | {503: says("A dependency is down.", ref("Health"), headers=RETRY_AFTER)}


@route("GET /livez", None, "getLiveness", "Check that this process is alive", answers=HEALTHY)
def live(call: Call) -> Answer:
    return _answer({}, {})


@route("GET /readyz", None, "getReadiness", "Check that this process can serve requests", answers=HEALTHY_OR_DOWN)
def ready(call: Call) -> Answer:
    """Whether requests can be served: Postgres responds, accepts writes, and has a schema that this code knows."""
    why = _postgres(call.service)
    return _answer({"postgres": why is None}, {"postgres": why})


@route("GET /healthz", None, "getHealth", "Check that all dependencies are healthy", answers=HEALTHY_OR_DOWN)
def healthy(call: Call) -> Answer:
    why = _postgres(call.service)
    checks = {"postgres": why is None}
    if call.service.settings.redis_url:
        checks["redis"] = _redis(call.service.settings.redis_url)
    return _answer(checks, {"postgres": why})


def _answer(checks: dict[str, bool], reasons: dict[str, str | None]) -> Answer:
    well = all(checks.values())
    document: dict[str, Any] = {
        "status": "ok" if well else "down",
        "checks": {name: "ok" if fine else "down" for name, fine in checks.items()},
    }
    known = {name: why for name, why in reasons.items() if why is not None}
    if known:
        document["reasons"] = known
    return answer(document, 200 if well else 503, None if well else {"Retry-After": "1"})


def _postgres(service: Service) -> str | None:
    """Why the database cannot be used, without its address; None if it can."""
    try:
        service.database.check()
    except (HoldfastError, psycopg.Error) as error:
        kind = KINDS[kind_of(error)]
        return kind.detail or kind.about
    return None


def _redis(url: str) -> bool:
    try:
        import redis

        limits = {"socket_timeout": REDIS_SECONDS, "socket_connect_timeout": REDIS_SECONDS}
        with redis.Redis.from_url(url, **limits) as client:
            return bool(client.ping())
    except Exception:  # noqa: BLE001 - whatever keeps it from answering, it did not answer
        return False


NOUN = Noun("health", "Health checks.", [live, ready, healthy])
