"""The retry policy of a task: when and how often a failed run is attempted again."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from holdfast.domain.errors import ChildDiffers, ConfigurationError, Fatal, ResultNotStorable

Seconds = float | timedelta
ErrorClass = type[BaseException] | str

NEVER_RETRIED = (ChildDiffers, Fatal, ResultNotStorable)

_DELAYS = (5.0, 20.0, 60.0)
_BACKOFF_JITTER = 0.1
_LONGEST = 366 * 86_400.0


@dataclass(frozen=True)
class Retry:
    """How often a run is attempted, how long to wait in between, and after which errors.

    `delays` are the seconds after the first, second, ... attempt; the last one repeats. Alternatively, `backoff`
    may be `"fixed"` (always `base_delay`) or `"exponential"` (`base_delay`, doubled each time, up to `max_delay`).
    `jitter` changes each delay by up to that fraction, either way: 0.1 is ±10 %, the default with a backoff;
    explicit delays have no jitter unless it is set. Durations are seconds or timedeltas.

    `retry_on` and `no_retry_on` name exceptions by class or by dotted path (`"requests.Timeout"`); subclasses count.
    An empty `retry_on` means all exceptions; `no_retry_on` takes precedence. Fatal errors and results that cannot be
    stored are never retried.
    """

    max_attempts: int = 3
    delays: Sequence[Seconds] = _DELAYS
    backoff: Literal["fixed", "exponential"] | None = None
    base_delay: Seconds = 5.0
    max_delay: Seconds = 3600.0
    jitter: float | None = None
    retry_on: Collection[ErrorClass] | ErrorClass = ()
    no_retry_on: Collection[ErrorClass] | ErrorClass = ()

    def __post_init__(self) -> None:
        if not _is_number(self.max_attempts, 1, 1_000_000) or isinstance(self.max_attempts, float):
            raise ConfigurationError(f"Retry(max_attempts={self.max_attempts!r}): must be a whole number of at least 1")
        if self.backoff not in (None, "fixed", "exponential"):
            raise ConfigurationError(f'Retry(backoff={self.backoff!r}): must be "fixed" or "exponential"')
        if self.jitter is not None and not _is_number(self.jitter, 0, 1):
            raise ConfigurationError(f"Retry(jitter={self.jitter!r}): must be a fraction of the delay, from 0 to 1")
        normalized = {
            "delays": _delays(self.delays),
            "base_delay": _seconds("base_delay", self.base_delay),
            "max_delay": _seconds("max_delay", self.max_delay),
            "jitter": _BACKOFF_JITTER * bool(self.backoff) if self.jitter is None else self.jitter,
            "retry_on": _error_classes("retry_on", self.retry_on),
            "no_retry_on": _error_classes("no_retry_on", self.no_retry_on),
        }
        for name, value in normalized.items():
            object.__setattr__(self, name, value)
        if self.backoff and self.delays != _DELAYS:
            raise ConfigurationError("Retry takes either delays or a backoff, not both; remove one of them")
        if self.backoff and seconds_of(self.max_delay) < seconds_of(self.base_delay):
            raise ConfigurationError(
                f"Retry(max_delay={self.max_delay}) is below base_delay={self.base_delay}; raise it"
            )

    def delay(self, after: int, random: float) -> timedelta:
        """Return the delay after the `after`-th counted attempt; `random` in [0, 1) determines the jitter."""
        step = max(after, 1)
        if self.backoff is None:
            cap = _LONGEST
            delay = seconds_of(self.delays[min(step, len(self.delays)) - 1]) if self.delays else 0.0
        else:
            cap = seconds_of(self.max_delay)
            growth = 2.0 ** min(step - 1, 64) if self.backoff == "exponential" else 1.0
            delay = min(seconds_of(self.base_delay) * growth, cap)
        spread = (self.jitter or 0.0) * (2 * random - 1)
        return timedelta(seconds=min(delay * (1 + spread), cap))

    def allows(self, error: BaseException) -> bool:
        """Whether a run that failed with this error may be retried, regardless of how many attempts are left."""
        if isinstance(error, NEVER_RETRIED) or _matches(error, self.no_retry_on):
            return False
        return not self.retry_on or _matches(error, self.retry_on)

    def to_json(self) -> dict[str, Any]:
        """Return the part of this policy that a run stores: the timing, without defaults."""
        return {name: value for name in _STORED if (value := _plain(getattr(self, name))) != _DEFAULTS[name]}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Retry:
        """Read a policy written by `to_json`, ignoring other members."""
        return cls(**{name: stored[name] for name in _STORED if name in stored})


def seconds_of(duration: Seconds) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _is_number(value: Any, least: float, most: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most


def _seconds(name: str, value: Any) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not _is_number(seconds, 0, _LONGEST):
        raise ConfigurationError(
            f"Retry({name}={value!r}): must be a number of seconds or a timedelta, from 0 to 366 days"
        )
    return float(seconds)


def _delays(given: Any) -> tuple[float, ...]:
    if not isinstance(given, (list, tuple)):
        raise ConfigurationError(f"Retry(delays={given!r}): must be a list of seconds, such as (5, 20, 60)")
    return tuple(_seconds("delays", delay) for delay in given)


def _error_classes(name: str, given: Any) -> tuple[ErrorClass, ...]:
    classes = given if isinstance(given, (list, tuple, set, frozenset)) else (given,)
    for one in classes:
        is_class = isinstance(one, type) and issubclass(one, BaseException)
        is_path = isinstance(one, str) and all(part.isidentifier() for part in one.split("."))
        if not is_class and not is_path:
            raise ConfigurationError(f"Retry({name}): {one!r} is neither an exception class nor its dotted path")
    return tuple(classes)


def _matches(error: BaseException, classes: Any) -> bool:
    return any(_named(error, one) if isinstance(one, str) else isinstance(error, one) for one in classes)


def _named(error: BaseException, path: str) -> bool:
    """Match the class's own path, or a path under which a loaded module exports it; nothing is imported."""
    module, _, name = path.rpartition(".")
    for cls in type(error).__mro__:
        if path in (f"{cls.__module__}.{cls.__qualname__}", cls.__qualname__ if cls.__module__ == "builtins" else None):
            return True
    offered = getattr(sys.modules.get(module), name, None)
    return isinstance(offered, type) and isinstance(error, offered)


_STORED = ("max_attempts", "delays", "backoff", "base_delay", "max_delay", "jitter")
_DEFAULTS: dict[str, Any] = {name: _plain(getattr(Retry(), name)) for name in _STORED}
