"""Retry policies: which errors, how often, with which delays, and what is stored with a run."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.domain.errors import ConfigurationError, Fatal, HoldfastError, ResultNotStorable
from holdfast.domain.policies import Retry

MIDDLE = 0.5


def delays_of(policy: Retry, *, count: int, random: float = MIDDLE) -> list[float]:
    return [policy.delay(after, random).total_seconds() for after in range(1, count + 1)]


class TestDelay:
    def test_the_default_is_5_20_60(self) -> None:
        assert Retry().max_attempts == 3
        assert delays_of(Retry(), count=3, random=0.99) == [5, 20, 60]

    def test_the_last_delay_repeats(self) -> None:
        assert delays_of(Retry(max_attempts=6, delays=(1, timedelta(minutes=1))), count=5) == [1, 60, 60, 60, 60]

    def test_empty_delays_mean_no_delay(self) -> None:
        assert delays_of(Retry(delays=()), count=2) == [0, 0]

    def test_fixed_backoff_always_has_the_same_delay(self) -> None:
        assert delays_of(Retry(backoff="fixed", base_delay=7), count=3) == [7, 7, 7]

    def test_exponential_doubles_up_to_its_cap(self) -> None:
        policy = Retry(backoff="exponential", base_delay=2, max_delay=timedelta(seconds=30))
        assert delays_of(policy, count=6) == [2, 4, 8, 16, 30, 30]

    def test_jitter_is_a_fraction_either_way(self) -> None:
        policy = Retry(delays=(100,), jitter=0.2)
        assert policy.delay(1, 0.0) == timedelta(seconds=80)
        assert policy.delay(1, 0.5) == timedelta(seconds=100)
        assert policy.delay(1, 0.75) == timedelta(seconds=110)

    def test_backoff_has_jitter_by_default(self) -> None:
        assert Retry(backoff="fixed").delay(1, 0.0) == timedelta(seconds=4.5)
        assert Retry(backoff="fixed", jitter=0).delay(1, 0.0) == timedelta(seconds=5)

    @settings(deadline=None)
    @given(
        st.sampled_from(["fixed", "exponential"]),
        st.floats(0, 1e6),
        st.floats(0, 1e7),
        st.floats(0, 1),
        st.integers(-5, 10**9),
        st.floats(0, 1, exclude_max=True),
    )
    def test_a_backoff_stays_between_floor_and_cap(
        self, backoff: Any, base: float, above: float, jitter: float, after: int, random: float
    ) -> None:
        policy = Retry(backoff=backoff, base_delay=base, max_delay=base + above, jitter=jitter)
        delay = policy.delay(after, random).total_seconds()
        assert base * (1 - jitter) - 1e-5 <= delay <= base + above + 1e-5

    @settings(deadline=None)
    @given(
        st.lists(st.floats(0, 1e7), max_size=5),
        st.floats(0, 1),
        st.integers(-5, 10**9),
        st.floats(0, 1, exclude_max=True),
    )
    def test_delays_stay_within_their_jitter(
        self, delays: list[float], jitter: float, after: int, random: float
    ) -> None:
        delay = Retry(delays=delays, jitter=jitter).delay(after, random).total_seconds()
        floor, cap = min(delays, default=0), max(delays, default=0)
        assert floor * (1 - jitter) - 1e-5 <= delay <= cap * (1 + jitter) + 1e-5


class Weather(Exception):
    pass


class Storm(Weather):
    pass


class TestAllows:
    def test_every_exception_is_retried_by_default(self) -> None:
        assert Retry().allows(ValueError())
        assert Retry().allows(KeyboardInterrupt())

    @pytest.mark.parametrize("error", [Fatal("no"), ResultNotStorable("no")])
    def test_fatal_and_unstorable_results_are_never_retried(self, error: Exception) -> None:
        assert not Retry().allows(error)
        assert not Retry(retry_on=(Exception, type(error))).allows(error)

    def test_allow_list_counts_subclasses(self) -> None:
        policy = Retry(retry_on=(Weather, OSError))
        assert policy.allows(Storm())
        assert policy.allows(FileNotFoundError())
        assert not policy.allows(ValueError())

    def test_deny_list_takes_precedence(self) -> None:
        policy = Retry(retry_on=(Weather,), no_retry_on=(Storm,))
        assert policy.allows(Weather())
        assert not policy.allows(Storm())
        assert not Retry(no_retry_on=(ValueError,)).allows(UnicodeError())

    @pytest.mark.parametrize(
        ("path", "error"),
        [
            ("ValueError", UnicodeError()),
            ("builtins.OSError", FileNotFoundError()),
            (f"{__name__}.Weather", Storm()),
            ("json.JSONDecodeError", json.JSONDecodeError("x", "y", 0)),
            ("json.decoder.JSONDecodeError", json.JSONDecodeError("x", "y", 0)),
            ("holdfast.domain.errors.HoldfastError", Fatal("x")),
        ],
    )
    def test_paths_count_like_classes(self, path: str, error: Exception) -> None:
        assert not Retry(no_retry_on=(path,)).allows(error)
        assert not Retry(retry_on=(path,)).allows(KeyError())

    def test_an_unknown_path_matches_nothing_and_imports_nothing(self) -> None:
        assert Retry(no_retry_on=("no_such_module.Error", "KeyError")).allows(ValueError())

    def test_one_class_needs_no_tuple(self) -> None:
        assert not Retry(no_retry_on=ValueError).allows(ValueError())


class TestStored:
    def test_default_policy_is_stored_as_nothing(self) -> None:
        assert Retry().to_json() == {}
        assert Retry(no_retry_on=(ValueError,)).to_json() == {}
        assert Retry.from_json({}) == Retry()

    @pytest.mark.parametrize(
        "policy",
        [
            Retry(max_attempts=1),
            Retry(delays=(timedelta(minutes=1), 2)),
            Retry(delays=()),
            Retry(backoff="fixed", base_delay=1),
            Retry(max_attempts=9, backoff="exponential", base_delay=2, max_delay=20, jitter=0.5),
        ],
    )
    def test_policy_is_read_back_unchanged(self, policy: Retry) -> None:
        assert Retry.from_json(json.loads(json.dumps(policy.to_json()))) == policy

    def test_stored_policy_omits_defaults(self) -> None:
        assert Retry(max_attempts=5, delays=(1,)).to_json() == {"max_attempts": 5, "delays": [1.0]}

    def test_other_stored_members_are_ignored(self) -> None:
        assert Retry.from_json({"max_attempts": 2, "timeout": 60.0}) == Retry(max_attempts=2)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"max_attempts": 2.0}, "max_attempts"),
        ({"max_attempts": "3"}, "max_attempts"),
        ({"delays": 5}, "delays"),
        ({"delays": "5"}, "delays"),
        ({"delays": (5, -1)}, "delays"),
        ({"delays": (float("nan"),)}, "delays"),
        ({"delays": (float("inf"),)}, "delays"),
        ({"delays": (timedelta(days=400),)}, "366 days"),
        ({"backoff": "linear"}, "exponential"),
        ({"backoff": "fixed", "delays": (1, 2)}, "not both"),
        ({"backoff": "fixed", "base_delay": -1}, "base_delay"),
        ({"backoff": "fixed", "base_delay": "5"}, "base_delay"),
        ({"backoff": "exponential", "base_delay": 60, "max_delay": 5}, "below"),
        ({"jitter": 1.5}, "jitter"),
        ({"jitter": float("nan")}, "jitter"),
        ({"retry_on": (int,)}, "retry_on"),
        ({"no_retry_on": ("not a path",)}, "no_retry_on"),
        ({"no_retry_on": (None,)}, "no_retry_on"),
    ],
)
def test_invalid_argument_is_rejected_by_name(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Retry(**arguments)


def test_errors_are_configuration_errors() -> None:
    assert issubclass(ConfigurationError, HoldfastError)
