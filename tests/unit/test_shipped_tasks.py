"""The shipped tasks, the mock and the forecast, called as by a worker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast.domain.canonical import canonicalize
from holdfast.domain.context import enter, leave
from holdfast.domain.errors import BadParameters, Fatal, RunCancelled
from holdfast.domain.tasks import Task, registry
from holdfast.tasks.forecast import REGIONS, SCENARIOS, forecast
from holdfast.tasks.mock import SimulatedFailure, mock

RUN_ID = "01890000-0000-7000-8000-000000000001"


class Recorder:
    """A run context without a worker, which records the reported progress."""

    id = RUN_ID

    def __init__(self, parameters: Any, attempt: int) -> None:
        self.parameters = parameters
        self.attempt = attempt
        self.reported: list[tuple[int, int, str]] = []
        self.stops: Callable[[], bool] = lambda: False

    def progress(self, done: int, total: int, unit: str) -> None:
        if self.stops():
            raise RunCancelled("enough")
        self.reported.append((done, total, unit))


@contextmanager
def running(parameters: Any, attempt: int = 1) -> Iterator[Recorder]:
    run = Recorder(parameters, attempt)
    context: Any = run
    token = enter(context)
    try:
        yield run
    finally:
        leave(token)


def perform(task: Task, parameters: dict[str, Any], attempt: int = 1) -> Any:
    task.check(parameters)
    with running(parameters, attempt):
        return task.call(parameters)


def test_module_of_tasks_does_not_import_heavy_modules() -> None:
    """Every child process imports such modules before its first run."""
    code = (
        "import sys, holdfast.executors.child, holdfast.demo.tasks;"
        "heavy = {'psycopg', 'sqlalchemy', 'pydantic', 'structlog', 'numpy', 'asyncio'};"
        "sys.exit(', '.join(sorted(heavy & sys.modules.keys())) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_importing_registers_the_shipped_tasks() -> None:
    assert {"mock", "baseline_forecast_v1"} <= set(registry.names())
    assert registry.get("mock") is mock


class TestMock:
    def test_the_result_has_the_shape_of_the_sources(self) -> None:
        parameters = {"seconds": 0, "payload": {"x": [1]}}
        result = perform(mock, parameters)
        assert result.keys() == {"run_id", "inputs", "metrics", "notes"}
        assert result["run_id"] == RUN_ID
        assert result["inputs"] == parameters
        assert result["metrics"].keys() == {"runtime_seconds", "objective"}
        assert 0 <= result["metrics"]["objective"] <= 1
        assert result["notes"] == "simulated"
        canonicalize(result)

    def test_mock_reports_each_step(self) -> None:
        parameters = {"seconds": 0, "steps": 4}
        with running(parameters) as run:
            mock.call(parameters)
        assert run.reported == [(1, 4, "steps"), (2, 4, "steps"), (3, 4, "steps"), (4, 4, "steps")]

    def test_mock_works_for_the_given_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = Clock(monkeypatch)
        assert perform(mock, {"seconds": 3.5})["metrics"]["runtime_seconds"] == pytest.approx(3.5)
        assert clock.now == pytest.approx(3.5)
        assert max(clock.naps) <= 0.05

    def test_mock_notices_cancellation(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = Clock(monkeypatch)
        with running({}) as run:
            run.stops = lambda: clock.now > 100
            with pytest.raises(RunCancelled, match="enough"):
                mock(seconds=3600, steps=1)
        assert clock.now == pytest.approx(100, abs=0.1)

    def test_mock_fails_its_first_attempts_halfway(self) -> None:
        parameters = {"seconds": 0, "steps": 10, "fail_times": 2}
        for attempt in (1, 2):
            with running(parameters, attempt) as run:
                with pytest.raises(SimulatedFailure, match=f"simulated failure {attempt} of 2"):
                    mock.call(parameters)
                assert run.reported[-1] == (5, 10, "steps")
        assert perform(mock, parameters, attempt=3)["notes"] == "simulated"

    def test_mock_fails_without_retry_if_fatal(self) -> None:
        with pytest.raises(Fatal):
            perform(mock, {"seconds": 0, "fail_times": 1, "fatal": True})
        assert perform(mock, {"seconds": 0, "fatal": True})["notes"] == "simulated"

    @pytest.mark.parametrize(
        "parameters",
        [{"seconds": -1}, {"seconds": "1"}, {"steps": 0}, {"steps": 1.5}, {"fail_times": -1}, {"fatal": 1}, {"x": 1}],
    )
    def test_bad_parameters_are_refused(self, parameters: dict[str, Any]) -> None:
        with pytest.raises(BadParameters) as caught:
            mock.check(parameters)
        assert [problem.pointer for problem in caught.value.problems] == [f"/{next(iter(parameters))}"]

    def test_mock_receives_parameters_unchanged(self) -> None:
        parameters = {"seconds": 1, "payload": None}
        assert mock.bind(parameters) is parameters


class Clock:
    """A clock that advances only while the mock sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.naps: list[float] = []
        monkeypatch.setattr("holdfast.tasks.mock.monotonic", lambda: self.now)
        monkeypatch.setattr("holdfast.tasks.mock.sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds


REQUEST = {"scenario": "high_inflation", "horizon_months": 24, "region": "AU"}


class TestForecast:
    def test_forecast_has_its_policies(self) -> None:
        assert forecast.name == "baseline_forecast_v1"
        assert forecast.queue == "models"
        assert forecast.retry is not None
        assert not forecast.retry.allows(ValueError())
        assert forecast.ignore_in_hash == ("requested_at", "client")

    def test_the_result_is_a_summary_in_json(self) -> None:
        result = perform(forecast, REQUEST)
        text, _ = canonicalize(result)
        assert json.loads(text) == result
        assert [month["month"] for month in result["months"]] == list(range(1, 25))
        for month in result["months"]:
            assert month["p05"] < month["p50"] < month["p95"]
            assert month["p05"] < month["mean"] < month["p95"]
        terminal = result["terminal"]
        assert terminal["min"] < terminal["p05"] < terminal["p95"] < terminal["max"]
        assert {name: terminal[name] for name in ("mean", "p05", "p50", "p95")}.items() <= result["months"][-1].items()
        assert 0 < result["probability_of_decline"] < 1
        assert result["value_at_risk"]["expected_shortfall"] > result["value_at_risk"]["loss"]
        assert isinstance(result["objective"], float)

    def test_equal_inputs_give_equal_results(self) -> None:
        first = perform(forecast, REQUEST)
        assert perform(forecast, {**REQUEST, "requested_at": "now", "client": {"name": "x"}}) == first
        assert perform(forecast, {**REQUEST, "seed": first["seed"]}) == first
        assert perform(forecast, {**REQUEST, "seed": 1}) != first
        assert perform(forecast, {**REQUEST, "region": "US"})["seed"] != first["seed"]

    def test_forecast_follows_its_assumptions(self) -> None:
        def growth(scenario: str) -> float:
            request = {"scenario": scenario, "horizon_months": 12, "region": "CA", "paths": 50_000}
            return float(perform(forecast, request)["expected_growth"])

        for name, assumptions in SCENARIOS.items():
            assert growth(name) == pytest.approx(assumptions.drift + REGIONS["CA"][0], abs=0.01)

    def test_worse_scenario_has_a_worse_objective(self) -> None:
        def decline(scenario: str) -> float:
            return float(perform(forecast, {**REQUEST, "scenario": scenario})["probability_of_decline"])

        assert decline("high_growth") < decline("baseline") < decline("recession")

    def test_forecast_reports_progress_by_month_and_notices_cancellation(self) -> None:
        with running(REQUEST) as run:
            forecast.call(REQUEST)
            assert run.reported == [(month, 24, "months") for month in range(1, 25)]
        with running(REQUEST) as run:
            run.stops = lambda: len(run.reported) == 3
            with pytest.raises(RunCancelled):
                forecast.call(REQUEST)
            assert len(run.reported) == 3

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"scenario": "sunny"}, "known: baseline.*high_inflation.*recession"),
            ({"region": "Atlantis"}, "known: AU.*US"),
            ({"horizon_months": 0}, "from 1 to 600"),
            ({"horizon_months": 601}, "from 1 to 600"),
            ({"paths": 0}, "paths"),
            ({"paths": 10_000_000}, "paths"),
            ({"seed": -1}, "seed"),
        ],
    )
    def test_invalid_input_raises_value_error(self, change: dict[str, Any], says: str) -> None:
        with pytest.raises(ValueError, match=says):
            perform(forecast, {**REQUEST, **change})

    def test_forecast_works_with_one_path_and_one_month(self) -> None:
        assert len(perform(forecast, {**REQUEST, "horizon_months": 1, "paths": 1})["months"]) == 1

    @pytest.mark.parametrize(
        ("parameters", "pointers"),
        [
            ({}, ["/scenario", "/horizon_months", "/region"]),
            ({**REQUEST, "horizon_months": "24"}, ["/horizon_months"]),
            ({**REQUEST, "horizont": 1}, ["/horizont"]),
        ],
    )
    def test_bad_parameters_are_refused(self, parameters: dict[str, Any], pointers: list[str]) -> None:
        with pytest.raises(BadParameters) as caught:
            forecast.check(parameters)
        assert [problem.pointer for problem in caught.value.problems] == pointers
