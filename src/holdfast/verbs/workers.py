"""Workers: list the processes that execute runs, and ask one to stop."""

from __future__ import annotations

from functools import partial

from holdfast import ops
from holdfast.documents.others import worker_document
from holdfast.documents.shapes import ID, record
from holdfast.domain.records import WorkerRecord
from holdfast.verbs import forms
from holdfast.verbs.caller import Caller
from holdfast.verbs.forms import Form
from holdfast.verbs.openapi import in_query, listed, problem, ref, says
from holdfast.verbs.subjects import worker_id
from holdfast.verbs.verb import Endpoint, MakeOp, verb

STATUSES = ("active", "idle", "draining", "stopped")
LOCKED_ROW = "an open transaction that locks a worker's row prevents the worker from renewing its leases"


@verb(
    Endpoint("GET /workers", "runs:read", "listWorkers", "List workers"),
    "Live workers, and those that stopped within the last day.",
    parameters=[in_query("status", "Only these.", {"type": "string", "enum": list(STATUSES)})],
    answers={200: says("The workers, newest first.", listed(ref("Worker"))), 422: problem("bad-input")},
    form=forms.items(worker_document, worker_document.read),
)
def workers(caller: Caller, /) -> MakeOp[list[WorkerRecord]]:
    """Return the live workers, and those that stopped within the last day."""
    return ops.list_workers


@verb(
    Endpoint("POST /workers/{worker_id}/drain", "operate", "drainWorker", "Drain a worker"),
    "The worker claims no more runs, and stops when its runs have ended.",
    answers={
        202: says(
            "The worker was asked to drain.",
            record("A worker.", {"id": ID, "status": {"type": "string", "enum": ["draining"]}}),
        )
    },
    form=Form(lambda found: found, lambda reply: True),
    refused_in_transaction=LOCKED_ROW,
)
def drain_worker(caller: Caller, /, worker: str) -> MakeOp[bool]:
    """Drain a worker: it claims no more runs, and stops when its runs have ended.

    If no live worker has this id, return False or, over HTTP, raise NotFound.
    """
    return partial(ops.drain_worker, worker_id(worker))
