from __future__ import annotations

from datetime import timedelta
from typing import Any

from forecasts.models import ScenarioRequest
from holdfast.django import task
from holdfast.tasks.forecast import forecast


@task(queue_name="models", timeout=timedelta(minutes=10))
def run_forecast(request_id: int) -> dict[str, Any]:
    """Simulate what was requested. The forecast reports its progress month by month."""
    requested = ScenarioRequest.objects.get(pk=request_id)
    return forecast(
        scenario=requested.scenario,
        horizon_months=requested.horizon_months,
        region=requested.region,
        paths=requested.paths,
    )
