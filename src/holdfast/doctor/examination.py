"""The examination: the checks in their order, each finding as soon as it is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from holdfast.doctor import database, machine, work
from holdfast.doctor.finding import Finding, State, fail, ok, skip
from holdfast.domain.errors import HoldfastError
from holdfast.settings import Settings, load

T = TypeVar("T")


def examine() -> Iterator[Finding]:
    """Check everything, and tell each finding as soon as it is known."""
    yield machine.python()
    try:
        settings = load()
    except HoldfastError as error:
        yield fail("settings", str(error), "correct it; holdfast config show lists all settings")
        return
    given = len(settings.origins)
    yield ok("settings", f"{given} set, the others are the defaults" if given else "all are the defaults")
    for check in machine.CHECKS:
        yield _guarded(check, settings)
    yield from _examine_database(settings)


def _examine_database(settings: Settings) -> Iterator[Finding]:
    from holdfast.client.surroundings import Surroundings, connect

    try:
        surroundings = Surroundings(settings, check=False)
    except HoldfastError as error:
        yield fail("database", str(error), "correct what it says, or set HOLDFAST_DATABASE_URL")
        yield skip("the rest", "not asked, because there is no database")
        return
    with surroundings:
        try:
            connection = connect(surroundings.database_url)
        except HoldfastError as error:
            yield fail("database", str(error), "start the server, or correct HOLDFAST_DATABASE_URL")
            yield skip("the rest", "not asked, because the database does not answer")
            return
        with connection:
            yield ok("database", "answers")
            patient = database.Patient(settings, surroundings.database_url, connection)
            fits = True
            for check in database.CHECKS:
                finding = _guarded(check, patient)
                fits = fits and not (finding.name == "schema" and finding.state is State.FAIL)
                yield finding
            if not fits:
                yield skip("work", "not asked, because the schema does not fit")
                return
            for check in work.CHECKS:
                yield _guarded(check, patient)


def _guarded(check: Callable[[T], Finding], subject: T) -> Finding:
    try:
        return check(subject)
    except Exception as error:  # noqa: BLE001 - a check that breaks is a finding, and must not hide the others
        said = " ".join(str(error).split()) or type(error).__name__
        fix = "see whether the role may read this, and the server's log"
        return fail(check.__name__.replace("_", " "), f"could not be checked: {said}", fix)
