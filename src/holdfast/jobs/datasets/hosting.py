"""Queries to the host process of a ClickHouse directory, which is started if there is none."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.domain.errors import BadInput, ConfigurationError, HoldfastError

ADDRESS = ".holdfast-host"
STARTING = ".holdfast-host.starting"
START_WITHIN = 60.0
_HEAD = struct.Struct("!BI")


class Refused(HoldfastError):
    """ClickHouse rejected a query."""


class _HostGone(Exception):
    """The host died, or closed the connection."""


def query(directory: str, text: str) -> list[dict[str, Any]]:
    """Run a query on the host of this directory. If the host dies before it responds, retry once."""
    with suppress(_HostGone):
        return _exchange(directory, text)
    try:
        return _exchange(directory, text)
    except _HostGone:
        raise HoldfastError(f"the ClickHouse process for {directory} died twice during a query: {text[:200]}") from None


def _exchange(directory: str, text: str) -> list[dict[str, Any]]:
    with _connected(directory) as channel:
        try:
            data = text.encode()
            channel.sendall(_HEAD.pack(0, len(data)) + data)
            kind, length = _HEAD.unpack(_read(channel, _HEAD.size))
            answer = _read(channel, length)
        except OSError as error:
            raise _HostGone from error
    if kind:
        raise Refused(answer.decode())
    return rows_of(answer)


def rows_of(answer: bytes) -> list[dict[str, Any]]:
    """Return the rows of a response, which is an Arrow stream."""
    if not answer:
        return []
    import pyarrow as pa

    with pa.ipc.open_stream(answer) as reader:
        rows: list[dict[str, Any]] = reader.read_all().to_pylist()
    return rows


def _read(channel: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        piece = channel.recv(min(length - len(data), 1 << 20))
        if not piece:
            raise ConnectionResetError("the host is gone")
        data += piece
    return bytes(data)


def _connected(directory: str) -> socket.socket:
    found = _connect(directory)
    if found is not None:
        return found
    place = Path(directory)
    if not place.is_dir():
        raise BadInput(f"there is no ClickHouse directory at {directory}")
    # The process that starts the host holds the lock until the host responds; others wait here and then find it.
    with (place / STARTING).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _connect(directory) or _start(directory)


def _in_use(directory: str) -> bool:
    """Whether a process has opened the directory, and so holds a lock on a file in it."""
    try:
        with (Path(directory) / "status").open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _connect(directory: str) -> socket.socket | None:
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        channel.connect(json.loads((Path(directory) / ADDRESS).read_text())["socket"])
    except (OSError, ValueError, KeyError):
        channel.close()
        return None
    return channel


def _start(directory: str) -> socket.socket:
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast.jobs.datasets.host", directory],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    ends = time.monotonic() + START_WITHIN
    while time.monotonic() < ends:
        found = _connect(directory)
        if found is not None:
            # The host exits on its own, and the process that started it need not wait for that.
            process.stderr.close()  # type: ignore[union-attr]
            process.returncode = 0
            return found
        if process.poll() is not None:
            output = process.communicate()[1].decode(errors="replace").strip()
            if "No module named 'chdb'" in output:
                raise ConfigurationError("ClickHouse tables need the extra `data`: pip install 'holdfast[data]'")
            if _in_use(directory):
                raise HoldfastError(f"the ClickHouse directory {directory} is open in another process; close it there")
            raise HoldfastError(f"the ClickHouse process for {directory} did not start: {output[-1000:]}")
        time.sleep(0.02)
    process.kill()
    process.communicate()
    raise HoldfastError(f"the ClickHouse process for {directory} did not respond within {START_WITHIN:g} s")
