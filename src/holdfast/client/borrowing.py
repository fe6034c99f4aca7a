"""What `on()` does not offer: calls that make no sense in a caller's transaction, or do harm while it stays open."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast import ops
from holdfast.client import calls
from holdfast.client import subscriptions as subscribing
from holdfast.domain.errors import BadInput

_WORKER = "an open transaction that holds a worker's row keeps the worker from renewing its leases"
_SUBSCRIPTION = "deliveries go by what is committed, and would wait for your transaction"
_UNSEEN = "a secret that is returned before it is committed may never come to be valid"

_REFUSED: dict[Callable[..., Any], tuple[str, str]] = {
    calls.drain_worker: ("drain_worker", _WORKER),
    ops.register_worker: ("register_worker", _WORKER),
    ops.heartbeat: ("worker_heartbeat", _WORKER),
    ops.deregister_worker: ("deregister_worker", _WORKER),
    subscribing.add_subscription: ("add_subscription", _UNSEEN),
    subscribing.rotate_secret: ("rotate_secret", _UNSEEN),
    subscribing.remove_subscription: ("remove_subscription", _SUBSCRIPTION),
    subscribing.pause_subscription: ("pause_subscription", _SUBSCRIPTION),
    subscribing.resume_subscription: ("resume_subscription", _SUBSCRIPTION),
    subscribing.redeliver: ("redeliver", _SUBSCRIPTION),
}


def check_offered(make_op: object) -> None:
    """Raise BadInput for a call that does not belong in a transaction of the caller's."""
    refused = _REFUSED.get(make_op.func) if isinstance(make_op, partial) else None
    if refused is not None:
        name, why = refused
        raise BadInput(f"{name} is not offered in your transaction: {why}; call it on the client itself")
