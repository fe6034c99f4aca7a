"""Ids of runs, workers and jobs: version 7 UUIDs as text, ordered by time, made where the request is made.

A client generates the id before it sends the request, so that it can safely repeat a request whose response was lost.
Its clock may be years off. A process that has read the database's time (`learn_time`) uses that time instead if the two
differ much, and measures the time since then with a clock that cannot be set.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

_lock = threading.Lock()
_last = 0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The digit of the variant (binary 10xx) for a digit of noise.
_VARIANTS = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))


def _replace_lock() -> None:
    """In a forked process, forget that another thread of the parent held the lock."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_replace_lock)


# A clock within so many nanoseconds of the database's is taken for right.
_TOLERATED = 60 * 1_000_000_000
# What to add to the time since boot to get the time of the database; None until it was learned.
_since_boot: int | None = None


# Nanoseconds since this machine was started, those it slept through included where the system counts them.
_boot_ns: Callable[[], int] = (
    partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic_ns
)


def learn_time(database_ns: int) -> None:
    """Use the database's time, in nanoseconds since 1970, for new ids if this machine's clock is far off."""
    global _since_boot, _last
    with _lock:
        _since_boot = database_ns - _boot_ns()
        if _last > _tick(database_ns + _TOLERATED):
            _last = 0


def _now_ns() -> int:
    """Return the time of this machine's clock, or of the database's if they are far apart."""
    now = time.time_ns()
    if _since_boot is not None:
        learned = _since_boot + _boot_ns()
        if abs(now - learned) > _TOLERATED:
            return learned
    return now


def _tick(ns: int) -> int:
    """Return milliseconds, with their fraction in the lowest 12 bits."""
    return (ns // 1_000_000) << 12 | (ns % 1_000_000) * 4096 // 1_000_000


def new_id() -> str:
    return new_ids(1)[0]


def new_ids(count: int) -> list[str]:
    """Ids in strictly rising order: 48 bits of milliseconds, 12 of their fraction, 62 of randomness."""
    global _last
    tick = _tick(_now_ns())
    with _lock:
        tick = max(tick, _last + 1)
        _last = tick + count - 1
    noise = os.urandom(8 * count).hex()
    ids: list[str] = []
    while len(ids) < count:
        # All that share their milliseconds at once.
        share = min(count - len(ids), 4096 - (tick & 0xFFF))
        head, low, at = f"{tick >> 12:012x}", tick & 0xFFF, 16 * len(ids)
        head = f"{head[:8]}-{head[8:]}-7"
        ids += [
            f"{head}{low + i:03x}-{_VARIANTS[noise[at]]}{noise[at + 1 : at + 4]}-{noise[at + 4 : at + 16]}"
            for i, at in enumerate(range(at, at + 16 * share, 16))
        ]
        tick += share
    return ids


def derived_id(origin: str, name: str, *, at: datetime | None = None) -> str:
    """Return the id that `name` always has under `origin`: creating something twice under it creates one thing.

    The id has the time of the origin, which then has to be an id, or the time `at`, rounded down to milliseconds. Give
    the same time each time: it is part of the id.
    """
    digest = hashlib.sha256(f"{origin}/{name}".encode()).hexdigest()
    milliseconds = uuid.UUID(origin).int >> 80 if at is None else _milliseconds(at)
    return _text(milliseconds << 12 | 0x800 | int(digest[:3], 16), digest[3:19])


def _milliseconds(at: datetime) -> int:
    found = (at - _EPOCH) // timedelta(milliseconds=1)  # TypeError without a time zone
    if not 0 <= found < 1 << 48:
        raise ValueError(f"an id holds a time from 1970 to 10889, not {at.isoformat()}")
    return found


SERIES_AT_MOST = 1 << 24


def series(origin: str, name: str, count: int, *, first: bool = False) -> list[str]:
    """The ids of numbered things under `origin`, rising with their numbers; `first` ones sort before all derived ids.

    They differ in their last 24 bits only, so a range of ids is a range of numbers.
    """
    if not 0 <= count <= SERIES_AT_MOST:
        raise ValueError(f"a series has at most {SERIES_AT_MOST} members, not {count}")
    digest = hashlib.sha256(f"{origin}/{name}/".encode()).hexdigest()
    bits = uuid.UUID(origin).int
    tick = (bits >> 80) << 12 | (0 if first else 0x800 | int(digest[:3], 16))
    head = _text(tick, digest[3:19])[:-6]
    return [f"{head}{number:06x}" for number in range(count)]


# Where an id lies among those of its job is in the 28 bits after its time and a mark that `first` ones do not have.
_MARK = 0x800
_NOISE_BITS = 11 + 62 - 28
LAST_PLACE = (1 << 28) - 1
MAP_TRIES = 512


def place_of(id_: str) -> int:
    """Return the position of an id in its job; -1 for `first` ids, which come before all others."""
    bits = uuid.UUID(id_).int
    if not bits >> 64 & _MARK:
        return -1
    return (bits >> 64 & 0x7FF) << 17 | (bits >> _NOISE_BITS & 0x1FFFF)


def placed_id(origin: str, place: int, name: str) -> str:
    """Return an id with the origin's time at this position, or at the last one; equal positions have no order."""
    place = min(place, LAST_PLACE)
    noise = int(hashlib.sha256(f"{origin}/{place}/{name}".encode()).hexdigest(), 16) % (1 << _NOISE_BITS)
    tail = (place & 0x1FFFF) << _NOISE_BITS | noise
    return _text((uuid.UUID(origin).int >> 80) << 12 | _MARK | place >> 17, f"{tail:016x}")


def slice_ids(map_id: str, count: int) -> list[str]:
    """Return the ids of the runs of a map, in ascending order."""
    return series(map_id, "chunks", count)


def map_id_after(place: int, origin: str, name: str) -> str:
    """Return an id for a map whose runs come soon after this position; their ids are derived from that of the map.

    Each map uses up part of the remaining positions: after some thousands of maps, positions are arbitrary.
    """
    found: tuple[int, str] | None = None
    for nonce in range(MAP_TRIES):
        id_ = derived_id(origin, f"{name} {nonce}")
        its_place = place_of(series(id_, "chunks", 1)[0])
        if its_place > place and (found is None or its_place < found[0]):
            found = its_place, id_
            if its_place - place < (LAST_PLACE - place) / MAP_TRIES:
                break
    return found[1] if found is not None else derived_id(origin, name)


def _text(tick: int, noise: str) -> str:
    head = f"{tick >> 12:012x}"
    return f"{head[:8]}-{head[8:]}-7{tick & 0xFFF:03x}-{_VARIANTS[noise[0]]}{noise[1:4]}-{noise[4:16]}"


def parse_id(text: object) -> str | None:
    """The canonical text of an id, or None if it is not a UUID in its usual form."""
    try:
        if isinstance(text, uuid.UUID):
            return str(text)
        if isinstance(text, str) and len(text) == 36:
            return str(uuid.UUID(text))
    except ValueError:
        return None
    return None
