"""Results as files: `{run_id}/{attempt}.json` under one directory.

A result is written to a temporary file, flushed to disk and then renamed, so a file with the final name is always
complete. Its directories are flushed as well: an acknowledged result survives a crash of the machine.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from holdfast.domain.errors import HoldfastError
from holdfast.domain.ids import parse_id
from holdfast.domain.values import StoredResult

CHUNK = 256 * 1024


class DamagedResult(HoldfastError):
    """A stored result is missing, or differs from what was stored."""


class FileStore:
    """Stores results in a directory."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory).absolute()

    def put(self, run_id: str, attempt: int, text: bytes) -> StoredResult:
        ref = f"{run_id}/{attempt}.json"
        path = self._path(ref)
        _make_directory(path.parent)
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with aside.open("wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            aside.rename(path)
            _sync_directory(path.parent)
            _sync_directory(self.directory)
        except OSError:
            aside.unlink(missing_ok=True)
            raise
        return StoredResult(ref, len(text), hashlib.sha256(text).hexdigest())

    def get(self, stored: StoredResult) -> bytes:
        try:
            text = self._path(stored.ref).read_bytes()
        except OSError as error:
            raise self._unreadable(stored, error) from error
        if hashlib.sha256(text).hexdigest() != stored.sha256:
            raise DamagedResult(f"result {stored.ref} is not what was stored: its SHA-256 differs")
        return text

    def chunks(self, stored: StoredResult) -> Iterator[bytes]:
        try:
            file = self._path(stored.ref).open("rb")
        except OSError as error:
            raise self._unreadable(stored, error) from error
        if os.fstat(file.fileno()).st_size != stored.size:
            file.close()
            raise DamagedResult(f"result {stored.ref} is not what was stored: its size differs")
        return _read(file, stored)

    def _unreadable(self, stored: StoredResult, error: OSError) -> DamagedResult:
        path = self._path(stored.ref)
        if not isinstance(error, FileNotFoundError):
            return DamagedResult(f"result {path} cannot be read: {error.strerror}")
        return DamagedResult(
            f"result {stored.ref} was not found in {self.directory}: the worker stored it where its own "
            "HOLDFAST_ARTIFACTS points. Set HOLDFAST_ARTIFACTS here to the same directory, or to an object store that "
            "both can reach"
        )

    def remove(self, run_id: str) -> None:
        directory = self._path(f"{run_id}/1.json").parent
        try:
            files = list(directory.iterdir())
        except FileNotFoundError:
            return
        for file in files:
            file.unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            directory.rmdir()
        _sync_directory(self.directory)

    def _path(self, ref: str) -> Path:
        run_id, _, name = ref.partition("/")
        number, _, suffix = name.partition(".")
        if parse_id(run_id) != run_id or not number.isdigit() or suffix != "json":
            raise DamagedResult(f"{ref!r} is not a reference to a stored result")
        return self.directory / run_id / name


def _read(file: BinaryIO, stored: StoredResult) -> Iterator[bytes]:
    with file:
        yield from verified(iter(lambda: file.read(CHUNK), b""), stored)


def verified(pieces: Iterable[bytes], stored: StoredResult) -> Iterator[bytes]:
    """Yield the pieces, the last one only after checking that all of them match the stored hash."""
    digest = hashlib.sha256()
    held = b""
    for piece in pieces:
        digest.update(piece)
        if held:
            yield held
        held = piece
    if digest.hexdigest() != stored.sha256:
        raise DamagedResult(f"result {stored.ref} is not what was stored: its SHA-256 differs")
    if held:
        yield held


def _make_directory(directory: Path) -> None:
    """Create a directory and its parents, flushing each new entry to disk."""
    if directory.is_dir():
        return
    _make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    _sync_directory(directory.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
