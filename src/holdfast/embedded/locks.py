"""File locks, which the kernel releases when their holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from holdfast.domain.errors import ConfigurationError

PAUSE_SECONDS = 0.02


def open_lock(path: Path) -> int:
    """Open a lock file. It gets the owner of its directory, so that both that user and root can use it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if os.geteuid() == 0:
        owner = path.parent.stat()
        os.fchown(fd, owner.st_uid, owner.st_gid)
    return fd


def attempt(fd: int, kind: int) -> bool:
    """Try to get the lock without waiting; a lock already held through `fd` is converted."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_held(path: Path) -> bool:
    fd = open_lock(path)
    try:
        return not attempt(fd, fcntl.LOCK_EX)
    finally:
        os.close(fd)


@contextlib.contextmanager
def exclusively(path: Path, seconds: float) -> Iterator[int]:
    """Hold the lock during the block; raise an error if other processes hold it too long."""
    fd = open_lock(path)
    try:
        deadline = time.monotonic() + seconds
        while not attempt(fd, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise ConfigurationError(
                    f"another process has been starting or stopping the embedded PostgreSQL for {seconds:.0f} s "
                    f"({path} is locked). End that process, or set HOLDFAST_DATABASE_URL."
                )
            time.sleep(PAUSE_SECONDS)
        yield fd
    finally:
        os.close(fd)
