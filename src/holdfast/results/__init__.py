"""Result stores for results that are too large for a database row: a directory or an object store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.values import StoredResult

OBJECT_STORES = ("s3://", "gs://", "az://")


class ResultStore(Protocol):
    """Stores results under references. A stored result is read back unchanged, or reading raises DamagedResult."""

    def put(self, run_id: str, attempt: int, text: bytes) -> StoredResult: ...

    def get(self, stored: StoredResult) -> bytes: ...

    def chunks(self, stored: StoredResult) -> Iterator[bytes]:
        """Yield a result in pieces. The last piece is yielded only if all of them match the stored hash."""

    def remove(self, run_id: str) -> None:
        """Remove all stored results of a run. Do nothing if there are none."""


def open_store(location: str) -> ResultStore:
    """Return the store at a directory, or at an s3://, gs:// or az:// URL."""
    if location.startswith(OBJECT_STORES):
        from holdfast.results.blob import BlobStore

        return BlobStore(location)
    if "://" in location:
        raise ConfigurationError(
            f"results cannot be stored at {location!r}; set HOLDFAST_ARTIFACTS to a directory, or to a URL that "
            f"starts with one of {', '.join(OBJECT_STORES)}"
        )
    from holdfast.results.files import FileStore

    return FileStore(location)
