"""Stored results: on disk before they are acknowledged, and removed after their run was pruned."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import ops
from holdfast.assembly.services import remove_results
from holdfast.domain.ids import new_id
from holdfast.domain.settling import Succeeded
from holdfast.results import ResultStore
from holdfast.results.blob import BlobStore
from holdfast.results.files import FileStore
from holdfast.verbs.procedures import follow
from tests.conformance.drivers import Psycopg
from tests.conformance.test_prune import RETENTION, make_month, old_id
from tests.timeline import Timeline


class Synced:
    """Records what was flushed to disk, in order, and whether the file already had its final name."""

    def __init__(self, final: Callable[[], bool]) -> None:
        self.paths: list[Path] = []
        self.named: list[bool] = []
        self._final = final
        self._fsync = os.fsync

    def __call__(self, descriptor: int) -> None:
        self.paths.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        self.named.append(self._final())
        self._fsync(descriptor)


def test_a_result_and_every_new_directory_are_flushed_before_the_result_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_id()
    place = tmp_path / "new" / "artifacts"
    synced = Synced((place / run / "1.json").exists)
    monkeypatch.setattr(os, "fsync", synced)
    FileStore(place).put(run, 1, b"1")
    *made, aside, directory, store = synced.paths
    assert made == [tmp_path, tmp_path / "new", place]
    assert (aside.parent, aside.name.startswith(".1.json")) == (place / run, True)
    assert (directory, store) == (place / run, place)
    assert synced.named == [False] * (len(made) + 1) + [True, True]


@pytest.fixture
def timeline(database_url: str) -> Iterator[Timeline]:
    with psycopg.connect(database_url, autocommit=True) as connection, Psycopg(database_url) as performing:
        make_month(connection)
        yield Timeline(performing, connection)


def stored(timeline: Timeline, store: ResultStore, run: str) -> str:
    """A run with a result in the store, and a file of a rejected attempt."""
    timeline.submit(id=run)
    worker = timeline.worker(run)
    claim = worker.claims(run)
    store.put(run, 7, b"2")
    worker.finish(claim, Succeeded(stored=store.put(run, claim.number, b"1")))
    return run


class MemoryStore(BlobStore):
    """An object store in memory, through the same library."""

    def __init__(self) -> None:
        import obstore
        from obstore.store import MemoryStore as Memory

        self._obstore, self._store, self.url = obstore, Memory(), "memory://"


@pytest.fixture(params=["files", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ResultStore:
    return FileStore(tmp_path) if request.param == "files" else MemoryStore()


def has(store: ResultStore, run: str) -> bool:
    if isinstance(store, FileStore):
        return (store.directory / run).exists()
    return any(store._obstore.list(store._store, prefix=run))


@pytest.mark.parametrize("place", ["month", "default"])
def test_results_of_pruned_runs_are_removed_and_those_of_others_stay(
    timeline: Timeline, store: ResultStore, place: str
) -> None:
    if place == "default":
        timeline._connection.execute("alter table holdfast.runs detach partition holdfast.runs_2001_05")
        timeline._connection.execute("alter table holdfast.attempts detach partition holdfast.attempts_2001_05")
    gone = stored(timeline, store, old_id())
    timeline.later(days=91)
    kept = stored(timeline, store, new_id())
    assert sweep(timeline, store) == 0
    assert has(store, gone)
    while timeline.perform(lambda: ops.prune(RETENTION)).more:
        pass
    assert sweep(timeline, store) == 1
    assert (has(store, gone), has(store, kept)) == (False, True)
    assert sweep(timeline, store) == 0


def test_a_result_that_cannot_be_removed_is_tried_again(timeline: Timeline, tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    gone = [stored(timeline, store, old_id()) for _ in range(2)]
    while timeline.perform(lambda: ops.prune(RETENTION)).more:
        pass
    (tmp_path / gone[0] / "stuck").mkdir()
    assert sweep(timeline, store) == 1
    assert (has(store, gone[0]), has(store, gone[1])) == (True, False)
    (tmp_path / gone[0] / "stuck").rmdir()
    assert sweep(timeline, store) == 1
    assert not has(store, gone[0])


def sweep(timeline: Timeline, store: ResultStore) -> int:
    perform: Any = timeline.perform
    return follow(remove_results(lambda: store), perform)
