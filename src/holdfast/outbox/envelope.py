"""The event as it is sent: a CloudEvent 1.0 in structured JSON, small, with links to the run and its result.

It is signed according to Standard Webhooks: HMAC-SHA256 over id, timestamp and body, one for each secret. A secret is
`whsec_` followed by the base64 of 24 to 64 bytes. While it is being replaced, a subscription has two secrets and sends
a signature for each, so that receivers can switch at any time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Any

from holdfast.domain.errors import BadInput, Problem
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


PREFIX = "whsec_"
LENGTHS = range(24, 65)


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def check_secret(text: str) -> str:
    """Return the secret if it is valid. Raises BadInput."""
    try:
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True) if text.startswith(PREFIX) else b""
    except binascii.Error:
        key = b""
    if len(key) not in LENGTHS:
        raise BadInput(
            f"a webhook's secret must be {PREFIX} followed by the base64 of {LENGTHS[0]} to {LENGTHS[-1]} bytes; "
            "omit it to have one generated",
            [Problem("/secret", "is not a Standard Webhooks secret")],
        )
    return text


def headers(secret: str, event_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers by which a receiver verifies the sender and the time."""
    signed = f"{event_id}.{timestamp}.".encode() + body
    signatures = [
        base64.b64encode(hmac.new(base64.b64decode(one.removeprefix(PREFIX)), signed, hashlib.sha256).digest()).decode()
        for one in secret.split()
    ]
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
