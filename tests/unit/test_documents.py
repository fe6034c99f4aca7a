"""A record is read back from its document unchanged, and the document has the fields of its schema."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from holdfast.documents.others import job_document, queue_document, worker_document
from holdfast.documents.runs import attempt_document, event_document, log_document, run_document
from holdfast.documents.shapes import Shape
from holdfast.domain.jobs import JobRecord
from holdfast.domain.records import AttemptRecord, EventRecord, LogRecord, QueueRecord, WorkerRecord
from holdfast.domain.states import Status
from holdfast.domain.values import RunRecord

AT = datetime(2026, 1, 31, 8, 0, 0, 250_000, tzinfo=UTC)
ID = "01994c3e-7d1c-7c62-bd1b-0e2d1c5f6a7b"
RUN = RunRecord(ID, "mock", Status.PENDING, {"seconds": 1}, "0" * 64, "default", 5, AT, tags=("a", "b"))
JOB = JobRecord(ID, "nightly", Status.RUNNING, None, AT, AT, None, None, None, None, 3, 1, 1, 0, 0, 0, "anna")
ATTEMPT = AttemptRecord(1, "LOST", None, ID, "process", AT, AT, None, None, "lost", None, {"done": 1}, None, AT, ID)
RECORDS: list[tuple[Shape[Any], Any]] = [
    (run_document, RUN),
    (run_document, RUN._replace(status=Status.SUCCEEDED, started_at=AT, finished_at=AT, lease_owner=ID, job_id=ID)),
    (job_document, JOB),
    (attempt_document, ATTEMPT),
    (event_document, EventRecord(1, "STARTED", "PENDING", "RUNNING", None, AT, 1)),
    (log_document, LogRecord(7, AT, 1, "info", "a line")),
    (queue_document, QueueRecord("default", 1, 2, 3, AT, None, None, None)),
    (
        worker_document,
        WorkerRecord(ID, "idle", "host", 1, "anna", "process", "1", 4, None, ["mock"], 0, 1, 0, AT, AT, AT, None),
    ),
]


@pytest.mark.parametrize(("shape", "record"), RECORDS)
def test_a_record_is_read_back_from_its_document_unchanged(shape: Shape[Any], record: Any) -> None:
    document = orjson.loads(orjson.dumps(shape(record)))
    assert shape.read(document) == record
    assert list(document) == list(shape.schema["properties"]) == shape.schema["required"]


def test_a_nullable_field_that_an_older_server_does_not_send_is_none() -> None:
    document = run_document(RUN._replace(concurrency_key="a"))
    del document["concurrency_key"]
    assert run_document.read(document).concurrency_key is None


def test_a_document_without_a_required_field_is_not_read() -> None:
    document = run_document(RUN)
    del document["queue"]
    with pytest.raises(KeyError):
        run_document.read(document)
