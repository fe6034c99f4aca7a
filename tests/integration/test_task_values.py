"""Values that are not JSON, from the caller through the database to the task."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.domain.errors import KeyReused
from holdfast.jobs.facades import Jobs
from tests.integration.value_tasks import Invoice, Period, bill, bill_inline, bill_slice, parent, parent_inline
from tests.integration.worker_support import Stage

TASKS = "tests.integration.value_tasks"
AT = datetime(2026, 5, 1, 14, tzinfo=timezone(timedelta(hours=2)))
INVOICE = Invoice(id=UUID(int=1), cents=Decimal("5.0"), period=Period(date(2026, 1, 1), date(2026, 1, 31)))
GIVEN = {"invoice": INVOICE, "at": AT}


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(database_url, tmp_path, tasks=(TASKS,))
    yield stage
    stage.close()


def test_a_task_receives_the_annotated_types_from_every_front_end(stage: Stage) -> None:
    period = "Period(first=datetime.date(2026, 1, 1), last=datetime.date(2026, 1, 31))"
    expected = [
        f"Invoice id=UUID('00000000-0000-0000-0000-000000000001') cents=Decimal('5') period={period}",
        f"Period {period}",
        "str 2026-05-01T12:00:00+00:00",
    ]
    client = stage.client
    job = Jobs(client).create_job("bills", [{"entrypoint": bill, "kwargs": GIVEN}])
    made = [
        client.submit(bill, GIVEN),
        client.submit(bill_inline, GIVEN),
        *client.submit_many(bill, [GIVEN, GIVEN]),
        client.get(job.tasks[0].id),
    ]
    mapped = Jobs(client).map(bill_slice, range(2), chunk_size=1, **GIVEN)
    made += [client.get(task.id) for task in Jobs(client).get_job(mapped.job_id).tasks]
    parents = [
        client.submit(one, {"task": child, "at": AT})
        for one, child in ((parent, "values.bill"), (parent_inline, "values.bill_inline"))
    ]
    with stage.worker():
        made += [client.get(stage.ended(one).result()) for one in parents]
        for run in made:
            assert stage.ended(run).result()[:3] == expected


def test_equal_values_are_one_payload(stage: Stage) -> None:
    client = stage.client
    elsewhere = GIVEN | {"at": AT.astimezone(UTC), "invoice": INVOICE.model_copy(update={"cents": Decimal(5)})}
    first = client.submit(bill, GIVEN, dedupe=3600)
    assert client.submit(bill, elsewhere, dedupe=3600).id == first.id
    keyed = client.submit(bill, GIVEN, key="one")
    assert client.submit(bill, elsewhere, key="one").id == keyed.id
    with pytest.raises(KeyReused) as reused:
        client.submit(bill, GIVEN | {"at": AT + timedelta(days=1)}, key="one")
    assert reused.value.fields == ("/parameters/at",)
