"""Forms of responses: how a result is written as a JSON document, and how a client reads it back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from holdfast.documents.others import job_document, queue_document
from holdfast.documents.restricted import restricted_job_document, restricted_run_document
from holdfast.documents.runs import run_document
from holdfast.domain.records import Page


@dataclass(frozen=True)
class Reply:
    """The answer of the API to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return orjson.loads(self.body)


class Form(NamedTuple):
    """`restricted` is the document for a token that may change runs but not read them."""

    write: Callable[[Any], Any]
    read: Callable[[Reply], Any]
    restricted: Callable[[Any], Any] | None = None


def document(
    write: Callable[[Any], Any], read: Callable[[Any], Any], restricted: Callable[[Any], Any] | None = None
) -> Form:
    """An answer that is one document."""
    return Form(write, lambda reply: read(reply.json()), restricted)


def items(write: Callable[[Any], Any], read: Callable[[Any], Any]) -> Form:
    """An answer that is a list of documents."""
    return Form(
        lambda found: {"items": [write(one) for one in found]},
        lambda reply: [read(one) for one in reply.json()["items"]],
    )


def page(write: Callable[[Any], Any], read: Callable[[Any], Any]) -> Form:
    """An answer that is one page of a list."""

    def read_page(reply: Reply) -> Page[Any]:
        found = reply.json()
        return Page(map(read, found["items"]), found["next_cursor"])

    return Form(lambda found: {"items": [write(one) for one in found], "next_cursor": found.next_cursor}, read_page)


NO_ANSWER = Form(lambda answer: {}, lambda reply: None)
RUN = document(run_document, run_document.read, restricted_run_document)
RUNS = page(run_document, run_document.read)
JOB = document(job_document, job_document.read, restricted_job_document)
JOBS = page(job_document, job_document.read)
QUEUE = document(queue_document, queue_document.read)
