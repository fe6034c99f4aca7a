"""Results in an object store, through obstore."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.ids import parse_id
from holdfast.domain.values import StoredResult
from holdfast.results.files import CHUNK, DamagedResult, verified


class BlobStore:
    """Stores results at an s3://, gs:// or az:// URL. Object stores write an object completely or not at all."""

    def __init__(self, url: str) -> None:
        try:
            import obstore
            from obstore.store import from_url
        except ImportError as error:
            raise ConfigurationError(
                f"artifacts at {url} need the extra `blob`: pip install 'holdfast[blob]'"
            ) from error
        self._obstore = obstore
        self._store = from_url(url)
        self.url = url.rstrip("/")

    def put(self, run_id: str, attempt: int, text: bytes) -> StoredResult:
        ref = f"{run_id}/{attempt}.json"
        self._obstore.put(self._store, ref, text)
        return StoredResult(ref, len(text), hashlib.sha256(text).hexdigest())

    def get(self, stored: StoredResult) -> bytes:
        text = bytes(self._found(stored).bytes())
        if hashlib.sha256(text).hexdigest() != stored.sha256:
            raise DamagedResult(f"result {self.url}/{stored.ref} is not what was stored: its SHA-256 differs")
        return text

    def chunks(self, stored: StoredResult) -> Iterator[bytes]:
        found = self._found(stored)
        return verified((bytes(piece) for piece in found.stream(min_chunk_size=CHUNK)), stored)

    def _found(self, stored: StoredResult) -> Any:
        try:
            return self._obstore.get(self._store, stored.ref)
        except FileNotFoundError as error:
            raise DamagedResult(
                f"result {stored.ref} was not found in {self.url}: the worker stored it where its own "
                "HOLDFAST_ARTIFACTS points. Set HOLDFAST_ARTIFACTS here to the same location"
            ) from error

    def remove(self, run_id: str) -> None:
        if parse_id(run_id) != run_id:
            raise DamagedResult(f"{run_id!r} is not a run id")
        for found in self._obstore.list(self._store, prefix=run_id):
            self._obstore.delete(self._store, [one["path"] for one in found])
