"""Django's own tests of its Tasks framework, run against Holdfast.

    python -m tests.django.contract

The source package of the installed Django is downloaded with pip into a temporary directory, and its `tests/tasks` are
run there on a separate PostgreSQL server. Django's two backends are replaced by Holdfast's: one that can list and
forget its results, like the dummy backend, and one whose `enqueue` has a worker run the task before it returns, like
the immediate backend. Prints how many passed, and why each of the others cannot apply.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path
from typing import Any

import django
from psycopg.conninfo import conninfo_to_dict

from holdfast.embedded import ensure_running

MEMORY = "changes a result in the memory of the dummy backend; Holdfast's are in the database"
REFUSAL = "is about what the immediate backend does not support; Holdfast supports it"
BLOCKING = "calls the blocking refresh() in a coroutine; Django refuses to use a database there"
NOT_APPLICABLE = {
    "DummyBackendTestCase.test_refresh_result": MEMORY,
    "DummyBackendTestCase.test_refresh_result_async": MEMORY,
    "ImmediateBackendTestCase.test_cannot_get_result": REFUSAL,
    "ImmediateBackendTestCase.test_cannot_refresh_result": REFUSAL,
    "ImmediateBackendTestCase.test_cannot_pass_run_after": REFUSAL,
    "ImmediateBackendTestCase.test_throws_keyboard_interrupt": "expects the task to run in the caller's process",
    "ImmediateBackendTransactionTestCase.test_doesnt_wait_until_transaction_commit_by_default": (
        "expects the task to have run before the transaction in which it is enqueued has been committed"
    ),
    "TaskTestCase.test_refresh_result": BLOCKING,
}
STAND_INS = (
    ("from django.tasks.backends.dummy import DummyBackend", "from stand_ins import Listing as DummyBackend"),
    (
        "from django.tasks.backends.immediate import ImmediateBackend",
        "from stand_ins import Running as ImmediateBackend",
    ),
    ("django.tasks.backends.dummy.DummyBackend", "stand_ins.Listing"),
    ("django.tasks.backends.immediate.ImmediateBackend", "stand_ins.Running"),
)


def download(directory: Path) -> None:
    """Put Django's tests of tasks into the directory, with Holdfast's backends in place of Django's."""
    wanted = f"django=={django.get_version()}"
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "django", "-d", str(directory)]
    subprocess.run([*pip, wanted], check=True)
    [package] = directory.glob("*.tar.gz")
    with tarfile.open(package) as archive:
        for member in archive.getmembers():
            parts = Path(member.name).parts
            if parts[1:3] == ("tests", "tasks") and member.isfile():
                found = archive.extractfile(member)
                assert found is not None
                text = found.read().decode()
                for before, after in STAND_INS:
                    text = text.replace(before, after)
                (directory / "tasks").mkdir(exist_ok=True)
                (directory / "tasks" / parts[3]).write_text(text)
    (directory / "stand_ins.py").write_text("from tests.django.contract_backends import Listing, Running\n")


def configure(url: str) -> None:
    from django.conf import settings

    given = conninfo_to_dict(url)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    database = {name: str(given.get(key) or "") for name, key in names.items()}
    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **database}},
        INSTALLED_APPS=["holdfast.django", "tasks"],
        TASKS={"default": {"BACKEND": "holdfast.django.HoldfastBackend"}},
        USE_TZ=True,
    )
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


class Result(unittest.TextTestResult):
    """Counts results, and checks that the tests listed as not applicable really fail."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.passed: list[str] = []

    def addSuccess(self, test: Any) -> None:  # noqa: N802 - unittest's name
        super().addSuccess(test)
        self.passed.append(name_of(test))


def name_of(test: Any) -> str:
    return f"{type(test).__name__}.{getattr(test, '_testMethodName', test)}"


def run(directory: Path) -> int:
    from django.test.utils import setup_test_environment

    setup_test_environment()
    suite = unittest.defaultTestLoader.discover(str(directory / "tasks"), top_level_dir=str(directory))
    left: list[unittest.TestCase] = []
    skipped: list[str] = []
    for test in _flat(suite):
        type(test).databases = "__all__"
        if name_of(test) in NOT_APPLICABLE:
            skipped.append(name_of(test))
        else:
            left.append(test)
    runner = unittest.TextTestRunner(resultclass=Result, verbosity=1)
    result = runner.run(unittest.TestSuite(left))
    assert isinstance(result, Result)
    print(f"Django {django.get_version()}: {len(result.passed)} of {len(left)} applicable tests passed")
    for name in skipped:
        print(f"  cannot apply: {name}: {NOT_APPLICABLE[name]}")
    return 0 if result.wasSuccessful() and len(result.passed) == len(left) else 1


def _flat(suite: Any) -> list[Any]:
    return [one for test in suite for one in (_flat(test) if isinstance(test, unittest.TestSuite) else [test])]


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o711)
        download(directory)
        sys.path.insert(0, str(directory))
        with ensure_running(directory / "home", durable=False) as server:
            configure(server.url)
            return run(directory)


if __name__ == "__main__":
    sys.exit(main())
