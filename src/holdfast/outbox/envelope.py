"""The event as a CloudEvent 1.0 in structured JSON: small, with links to the run and its result."""

from __future__ import annotations

from typing import Any

from holdfast.domain.times import written
from holdfast.sql.deliveries import Delivery

CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
TYPES = {"RunCompleted": "holdfast.run.completed"}


def cloud_event(delivery: Delivery, source: str) -> dict[str, Any]:
    """Return the event's document, which is the same for every attempt of a delivery."""
    data = dict(delivery.data)
    traceparent = data.pop("traceparent", None)
    run = f"/runs/{delivery.run_id}"
    data["links"] = {"run": run, "result": f"{run}/result", "events": f"{run}/events"}
    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": delivery.event_id,
        "source": source,
        "type": TYPES.get(delivery.type, f"holdfast.{delivery.type.lower()}"),
        "subject": f"runs/{delivery.run_id}",
        "time": written(delivery.at),
        "datacontenttype": "application/json",
        "data": data,
    }
    if traceparent:
        event["traceparent"] = traceparent
    return event
