"""A short version of `python -m tests.http.fuzz`: generated calls, each checked against the OpenAPI document."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
import schemathesis
from flask import Flask
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from holdfast.http.nouns import NOUNS

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
ROUTES = [(route.method, route.path) for noun in NOUNS for route in noun.routes]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_generated_calls_get_the_documented_responses(app: Flask, method: str, path: str) -> None:
    operation = schemathesis.openapi.from_wsgi("/openapi.json", app)[path][method]

    @hypothesis.given(case=operation.as_strategy())
    @hypothesis.settings(
        max_examples=10, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    def called(case: Any) -> None:
        if case.query and "wait" in case.query:
            case.query = {**case.query, "wait": 0}
        case.call_and_validate(checks=CHECKS)

    called()
