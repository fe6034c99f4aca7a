"""The examination: runs the checks in order and yields each finding as soon as it is known."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import TypeVar

from holdfast.doctor import database, machine, work
from holdfast.doctor.finding import Finding, State, fail, ok, skip
from holdfast.domain.errors import HoldfastError
from holdfast.runtime.settings import Settings, load

T = TypeVar("T")

CONNECT = "start the server, or correct HOLDFAST_DATABASE_URL"
BROKEN = "holdfast --traceback db upgrade shows where it fails; or set HOLDFAST_DATABASE_URL to another database"


def examine(purpose: str = "worker") -> Iterator[Finding]:
    """Check everything and yield each finding as soon as it is known. `purpose` is the purpose of the database role."""
    yield machine.python()
    try:
        settings = load()
    except (HoldfastError, OSError) as error:
        yield fail("settings", _message(error), "correct it; holdfast config show lists all settings")
        return
    given = len(settings.origins)
    yield ok("settings", f"{given} set, the others are the defaults" if given else "all are the defaults")
    reported: set[str] = set()
    for check in machine.CHECKS:
        finding = _guarded(check, settings)
        reported.add(finding.detail)
        if finding.name == "tasks" and finding.state is State.FAIL:
            settings = replace(settings, tasks=())
        yield finding
    try:
        yield from _examine_database(settings, reported, purpose)
    except Exception as error:  # noqa: BLE001 - any error is a finding too
        yield fail("database", f"could not be checked: {_message(error)}", BROKEN)
        yield skip("the rest", "not checked, because of this problem")


def _examine_database(settings: Settings, reported: Collection[str], purpose: str) -> Iterator[Finding]:
    """Examine the database, without repeating problems that were already `reported`."""
    from holdfast.runtime.runtime import Runtime, connect

    try:
        runtime = Runtime(settings, check=False)
    except HoldfastError as error:
        if str(error) not in reported:
            yield fail("database", str(error), "fix this problem, or set HOLDFAST_DATABASE_URL")
        yield skip("the rest", "not checked, because of this problem")
        return
    with runtime:
        try:
            connection = connect(runtime.database_url, settings.pooler)
        except HoldfastError as error:
            yield fail("database", str(error), CONNECT)
            yield skip("the rest", "not checked, because the database does not respond")
            return
        with connection:
            yield ok("database", "responds")
            target = database.Target(settings, runtime.database_url, connection, purpose)
            fits = True
            for check in database.CHECKS:
                finding = _guarded(check, target)
                fits = fits and not (finding.name == "schema" and finding.state is State.FAIL)
                yield finding
            if not fits:
                yield skip("work", "not checked, because the schema does not match")
                return
            for check in work.CHECKS:
                yield _guarded(check, target)


def _guarded(check: Callable[[T], Finding], subject: T) -> Finding:
    try:
        return check(subject)
    except Exception as error:  # noqa: BLE001 - a check that raises is a finding, and must not prevent the others
        fix = "check that the role may read this, and see the server's log"
        return fail(check.__name__.replace("_", " "), f"could not be checked: {_message(error)}", fix)


def _message(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, HoldfastError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
