"""`baseline_forecast_v1`: the possible values of an index in the coming months, by Monte Carlo simulation.

Each path is a geometric Brownian motion, month by month, with a yearly season on top. A scenario sets drift,
volatility and season; a region scales them. Equal inputs give equal results: the default seed is derived from them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from holdfast.domain.canonical import canonicalize
from holdfast.domain.context import current_run
from holdfast.domain.errors import Fatal
from holdfast.domain.policies import Retry
from holdfast.domain.tasks import task

Values = Any  # a numpy array; numpy is imported only where the forecast runs

START = 100.0
MAX_HORIZON = 600
MAX_PATHS = 1_000_000


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Yearly growth, volatility and seasonal amplitude of an index."""

    drift: float
    volatility: float
    season: float


SCENARIOS = {
    "baseline": Assumptions(drift=0.045, volatility=0.12, season=0.010),
    "high_growth": Assumptions(drift=0.085, volatility=0.15, season=0.012),
    "high_inflation": Assumptions(drift=0.015, volatility=0.20, season=0.018),
    "low_rates": Assumptions(drift=0.060, volatility=0.11, season=0.008),
    "recession": Assumptions(drift=-0.080, volatility=0.26, season=0.010),
    "stagflation": Assumptions(drift=-0.030, volatility=0.23, season=0.020),
}

# For each region: the difference in drift, the factor of volatility, and the month of the seasonal peak.
REGIONS = {
    "AU": (0.004, 1.05, 12),
    "CA": (0.002, 1.00, 6),
    "EU": (-0.004, 0.95, 6),
    "JP": (-0.010, 0.90, 4),
    "NZ": (0.003, 1.08, 12),
    "UK": (-0.002, 1.00, 7),
    "US": (0.006, 1.02, 6),
}


@task(
    "baseline_forecast_v1",
    queue="models",
    timeout=timedelta(hours=1),
    retry=Retry(max_attempts=3, delays=(5, 20, 60), no_retry_on=(ValueError,)),
    ignore_in_hash=("requested_at", "client"),
)
def forecast(
    scenario: str,
    horizon_months: int,
    region: str,
    paths: int = 2000,
    seed: int | None = None,
    requested_at: str | None = None,
    client: Any = None,
) -> dict[str, Any]:
    """Simulate the months ahead and return their quantiles, the distribution at the end, and the risk of a loss.

    `requested_at` and `client` are notes of the caller: they affect neither the payload hash nor the result.
    """
    _check(scenario, horizon_months, region, paths, seed)
    run = current_run()
    seed = _seed(scenario, horizon_months, region, paths) if seed is None else seed
    months: list[dict[str, float]] = []
    outlook: dict[str, Any] = {}
    for values in _simulate(SCENARIOS[scenario], region, horizon_months, paths, seed):
        months.append({"month": len(months) + 1, **_summary(values)})
        run.progress(len(months), horizon_months, unit="months")
        if len(months) == horizon_months:
            outlook = _outlook(values)
    inputs = {"scenario": scenario, "horizon_months": horizon_months, "region": region, "paths": paths, "seed": seed}
    return {**inputs, "start": START, "months": months, **outlook}


def _check(scenario: str, horizon_months: int, region: str, paths: int, seed: int | None) -> None:
    if scenario not in SCENARIOS:
        raise ValueError(f"unknown scenario {scenario!r}; known: {', '.join(SCENARIOS)}")
    if region not in REGIONS:
        raise ValueError(f"unknown region {region!r}; known: {', '.join(REGIONS)}")
    if not 1 <= horizon_months <= MAX_HORIZON:
        raise ValueError(f"horizon_months is {horizon_months}; it must be from 1 to {MAX_HORIZON}")
    if not 1 <= paths <= MAX_PATHS:
        raise ValueError(f"paths is {paths}; it must be from 1 to {MAX_PATHS}")
    if seed is not None and seed < 0:
        raise ValueError(f"seed is {seed}; it must be a whole number of at least 0")


def _seed(*inputs: Any) -> int:
    _, digest = canonicalize(inputs)
    return int(digest[:8], 16)


def _simulate(scenario: Assumptions, region: str, months: int, paths: int, seed: int) -> Iterator[Values]:
    """Yield the values of all paths, month by month."""
    np = _numpy()
    lift, swing, peak = REGIONS[region]
    volatility = scenario.volatility * swing
    growth = (scenario.drift + lift - volatility**2 / 2) / 12
    generator = np.random.default_rng(seed)
    logs = np.zeros(paths)
    for month in range(1, months + 1):
        logs += growth + volatility / math.sqrt(12) * generator.standard_normal(paths)
        season = math.cos(2 * math.pi * (month - peak) / 12) - math.cos(2 * math.pi * peak / 12)
        yield START * np.exp(logs) * (1 + scenario.season * season)


def _summary(values: Values) -> dict[str, float]:
    np = _numpy()
    p05, p50, p95 = np.quantile(values, [0.05, 0.5, 0.95]).tolist()
    return {"mean": _rounded(values.mean()), "p05": _rounded(p05), "p50": _rounded(p50), "p95": _rounded(p95)}


def _outlook(values: Values) -> dict[str, Any]:
    """Return the distribution of the last month and the risk, as fractions of the start value.

    The objective is the expected growth less half the value at risk: a cautious planner's objective.
    """
    np = _numpy()
    worst = float(np.quantile(values, 0.05))
    loss = (START - worst) / START
    shortfall = (START - float(values[values <= worst].mean())) / START
    growth = float(values.mean()) / START - 1
    extremes = {"std": values.std(), "min": values.min(), "max": values.max()}
    return {
        "terminal": {**_summary(values), **{name: _rounded(value) for name, value in extremes.items()}},
        "expected_growth": _rounded(growth),
        "probability_of_decline": _rounded((values < START).mean()),
        "value_at_risk": {"level": 0.95, "loss": _rounded(loss), "expected_shortfall": _rounded(shortfall)},
        "objective": _rounded(growth - loss / 2),
    }


def _rounded(value: Any) -> float:
    return round(float(value), 6)


def _numpy() -> Any:
    try:
        import numpy as np
    except ImportError as error:
        raise Fatal("this forecast needs numpy; install it with holdfast[models]") from error
    return np
