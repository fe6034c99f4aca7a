"""`--reload`: restart the worker when source code changes.

An outer process restarts the worker each time it exits with Django's exit code for a reload. The worker runs in its
main thread, as signal handling requires, and watches files in another.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.utils import autoreload

RELOAD = 3


def supervise_reloads() -> bool:
    """In the outer process, run the worker until it ends for a reason other than a reload, and return False.

    In the worker itself, return True.
    """
    if os.environ.get(autoreload.DJANGO_AUTORELOAD_ENV) == "true":
        return True
    command = autoreload.get_child_arguments()
    environment = {**os.environ, autoreload.DJANGO_AUTORELOAD_ENV: "true"}
    code = RELOAD
    while code == RELOAD:
        with subprocess.Popen(command, env=environment, close_fds=False) as worker:
            # A terminal sends SIGINT to both processes, and the worker decides what it means.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, lambda *_, worker=worker: worker.send_signal(signal.SIGTERM))
            code = worker.wait()
    if code:
        sys.exit(code)
    return False


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
