"""Options that stop the worker: `--max-tasks`, after which its supervisor restarts it, and `--reload`.

For `--reload`, an outer process restarts the worker each time it exits with Django's exit code for a reload. The worker
runs in its main thread, as signal handling requires, and watches files in another.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.apps import apps
from django.utils import autoreload

from holdfast.django.announcing import EVENTS
from holdfast.observe import subscribe

RELOAD = 3
COUNTED = tuple(event for event in EVENTS if event != "run.lost")


@contextmanager
def stop_after(most: int | None) -> Iterator[None]:
    """Stop this process as SIGTERM does once `most` attempts have ended. Runs claimed by then are still executed."""
    if most is None:
        yield
        return
    left = most

    def count(event: str, fields: dict[str, Any]) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGTERM)

    unsubscribe = subscribe(count, COUNTED.__contains__)
    try:
        yield
    finally:
        unsubscribe()


def supervise_reloads() -> bool:
    """In the outer process, run the worker until it ends for a reason other than a reload, and return False.

    If changed code cannot be imported, wait for the next change. In the worker itself, return True.
    """
    if os.environ.get(autoreload.DJANGO_AUTORELOAD_ENV) == "true":
        return True
    code, reloaded = RELOAD, False
    while code == RELOAD:
        before = sources()
        code, stopped = _run_worker()
        if code > 0 and reloaded and not stopped and code != RELOAD:
            sys.stderr.write("The worker failed. It starts again when the code changes; Ctrl-C ends it.\n")
            wait_for_change(before)
            code = RELOAD
        reloaded = True
    if code:
        sys.exit(code)
    return False


def _run_worker() -> tuple[int, bool]:
    """Run the worker. Return its exit code, and whether this process was asked to stop."""
    stopped = False
    environment = {**os.environ, autoreload.DJANGO_AUTORELOAD_ENV: "true"}
    with subprocess.Popen(autoreload.get_child_arguments(), env=environment, close_fds=False) as worker:

        def stop(*_: object) -> None:
            nonlocal stopped
            stopped = True
            worker.send_signal(signal.SIGTERM)

        # A terminal sends SIGINT to both processes, and the worker decides what it means.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN), signal.signal(signal.SIGTERM, stop)
        code = worker.wait()
    signal.signal(signal.SIGINT, before[0])
    signal.signal(signal.SIGTERM, before[1])
    return code, stopped


def sources() -> dict[Path, float]:
    """The source files of the installed apps and of all imported modules, and when each was changed."""
    watcher = autoreload.StatReloader()
    for app in apps.get_app_configs():
        watcher.watch_dir(app.path, "**/*.py")
    return dict(watcher.snapshot_files())


def wait_for_change(before: dict[Path, float]) -> None:
    while sources() == before:
        time.sleep(autoreload.StatReloader.SLEEP_TIME)


@contextmanager
def stop_on_change(enabled: bool) -> Iterator[None]:
    """When a file changes, stop this process as SIGTERM does, and exit with the code for a reload."""
    if not enabled:
        yield
        return
    changed = threading.Event()

    class Watcher(autoreload.StatReloader):
        def notify_file_changed(self, path: Any) -> None:
            if not changed.is_set():
                changed.set()
                os.kill(os.getpid(), signal.SIGTERM)

    def watch() -> None:
        for _ in Watcher().tick():
            if changed.is_set():
                return

    threading.Thread(target=watch, name="holdfast-reload", daemon=True).start()
    yield
    if changed.is_set():
        sys.exit(RELOAD)
