"""docs/metrics.md lists every metric that the API and a worker print, with its kind, labels and meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families

from holdfast.assembly.worker import WorkerRequest, worker_options
from holdfast.http.metrics import PREFIX, SOURCES
from holdfast.runtime.runtime import Runtime
from holdfast.runtime.settings import Settings
from holdfast.worker import Worker
from holdfast.worker.figures import Figures
from holdfast.worker.port import WorkerPort
from tests.http.conftest import ROOT, Submit
from tests.http.manual_worker import ManualWorker

PAGE = (ROOT / "docs" / "metrics.md").read_text("utf-8")
# Standard metrics of the Prometheus client, which it documents itself.
STANDARD = ("process_", "python_")


class Entry(NamedTuple):
    name: str
    kind: str
    labels: str
    about: str


def printed(text: str) -> set[Entry]:
    found = set()
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        if not name.startswith(STANDARD):
            labels = {label for sample in family.samples for label in sample.labels if label != "le"}
            found.add(Entry(name, family.type, ", ".join(sorted(labels)), family.documentation))
    return found


def listed(title: str) -> set[Entry]:
    part = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert part
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ?([\w, ]*?) ?\| (.*) \|$", part[1], re.MULTILINE)
    return {Entry(*row) for row in rows}


@pytest.fixture
def worker_metrics(settings: Settings) -> Iterator[str]:
    with Runtime(settings) as runtime:
        figures = Figures()
        figures.know_tasks()
        worker = Worker(worker_options(runtime, WorkerRequest(executor="inline")))
        port = WorkerPort(worker, figures, "127.0.0.1", 0)
        yield port.answer("/metrics")[2]
        port.close()


def test_the_page_lists_what_the_api_prints(api: FlaskClient, submit: Submit, manual_worker: ManualWorker) -> None:
    manual_worker.run(submit(), 1)
    found = printed(api.get("/metrics").text)
    prefixed = {entry for entry in found if entry.name.startswith(PREFIX)}
    assert listed("The whole system") | listed("An API process") == prefixed
    bare = {entry.name for entry in found - prefixed}
    assert bare == SOURCES
    assert {PREFIX + name for name in bare} <= {entry.name for entry in prefixed}
    assert set(re.findall(r"`(\w+)`", PAGE.partition("## The whole system")[0])) >= SOURCES


def test_the_page_lists_what_a_worker_prints(worker_metrics: str) -> None:
    assert listed("A worker") == printed(worker_metrics)
