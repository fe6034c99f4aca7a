"""Joining and leaving the embedded server."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import sys
import threading
from pathlib import Path
from typing import Self

from holdfast.domain.errors import ConfigurationError
from holdfast.embedded import locks, postmaster
from holdfast.embedded.places import Places

# Longer than a start with recovery, so that a process that waits for another's start does not give up first.
START_LOCK_SECONDS = postmaster.START_SECONDS + 60.0
CHECK_SECONDS = 1.0


class Server:
    """This process's use of the embedded server, which runs at least until `release` or the end of this process."""

    def __init__(self, places: Places, hold: int, *, durable: bool) -> None:
        self._places = places
        self._hold: int | None = hold
        self._durable = durable
        self._leaving = threading.Lock()
        self._left = threading.Event()

    @property
    def url(self) -> str:
        """The address of the server: `postgresql://…`."""
        return self._places.url()

    @property
    def home(self) -> Path:
        return self._places.home

    def restart_if_dead(self) -> None:
        """Restart the server if it has died; return once it accepts connections."""
        with locks.exclusively(self._places.start_lock, START_LOCK_SECONDS) as lock:
            if not self._left.is_set():
                postmaster.start(self._places, lock, durable=self._durable)

    def restart_when_dead(self) -> None:
        """Restart the server whenever it dies, until released."""
        threading.Thread(target=self._guard, name="holdfast-embedded", daemon=True).start()

    def _guard(self) -> None:
        while not self._left.wait(CHECK_SECONDS):
            if postmaster.find(self._places) is None:
                with contextlib.suppress(ConfigurationError, OSError):
                    self.restart_if_dead()

    def release(self) -> None:
        """Stop using the server; the last process stops it and waits until it is gone. A second call has no effect."""
        self._left.set()
        with self._leaving:
            hold, self._hold = self._hold, None
            _open.discard(self)
            if hold is None:
                return
            try:
                with locks.exclusively(self._places.start_lock, START_LOCK_SECONDS):
                    if locks.attempt(hold, fcntl.LOCK_EX):
                        postmaster.stop(self._places)
            finally:
                os.close(hold)

    def forget(self) -> None:
        """In a forked child, close the inherited lock without releasing it: the use belongs to the parent."""
        self._leaving = threading.Lock()
        self._left = threading.Event()
        hold, self._hold = self._hold, None
        if hold is not None:
            os.close(hold)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


_open: set[Server] = set()


def ensure_running(home: Path, *, durable: bool = True) -> Server:
    """Start the embedded server under `home`, or attach to it, and use it until released.

    `durable=False` gives up safety against power loss for speed. It is meant for tests, and takes effect in the process
    that starts the server.
    """
    if sys.platform not in {"linux", "darwin"}:
        raise ConfigurationError(
            f"the embedded PostgreSQL does not run on {sys.platform}. Set HOLDFAST_DATABASE_URL to a server's address."
        )
    places = Places(Path(home).resolve())
    server: Server | None = None
    try:
        places.make_home()
        with locks.exclusively(places.start_lock, START_LOCK_SECONDS) as lock:
            hold = locks.open_lock(places.users_lock)
            server = Server(places, hold, durable=durable)
            _open.add(server)
            fcntl.flock(hold, fcntl.LOCK_SH)
            postmaster.start(places, lock, durable=durable)
    except BaseException as error:
        # Even if a signal interrupted the start, stop the server unless other processes use it.
        if server is not None:
            with contextlib.suppress(ConfigurationError, OSError):
                server.release()
        if not isinstance(error, OSError):
            raise
        raise ConfigurationError(
            f"the embedded PostgreSQL cannot use {error.filename or places.home}: {error.strerror or error}. "
            "Set HOLDFAST_HOME to a writable directory, or HOLDFAST_DATABASE_URL to a server's address."
        ) from error
    return server


def stop_if_unused(home: Path) -> bool:
    """Stop the server if no process uses it. Return whether it is stopped."""
    places = Places(Path(home).resolve())
    if not places.start_lock.exists():
        return True
    with locks.exclusively(places.start_lock, START_LOCK_SECONDS):
        hold = locks.open_lock(places.users_lock)
        try:
            if not locks.attempt(hold, fcntl.LOCK_EX):
                return False
            postmaster.stop(places)
            return not locks.is_held(places.server_lock)
        finally:
            os.close(hold)


@atexit.register
def _leave_all() -> None:
    for server in list(_open):
        with contextlib.suppress(ConfigurationError, OSError):
            server.release()


def _forget_all() -> None:
    for server in list(_open):
        server.forget()
    _open.clear()


os.register_at_fork(after_in_child=_forget_all)
