"""The OpenAPI document matches what the server does."""

from __future__ import annotations

import re
from typing import Any

from flask import Flask
from flask.testing import FlaskClient
from openapi_spec_validator import OpenAPIV31SpecValidator

from holdfast.domain.ids import new_id
from holdfast.domain.tasks import registry
from holdfast.http.nouns import NOUNS
from holdfast.http.problems import KINDS
from holdfast.http.routes import ANY_SCOPE


def operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_openapi_document_is_valid(api: FlaskClient) -> None:
    document = api.get("/openapi.json").json
    assert document["openapi"] == "3.1.0"
    OpenAPIV31SpecValidator(document).validate()


def test_openapi_document_has_every_route_and_no_other(app: Flask, api: FlaskClient) -> None:
    routed = {
        (method, rule.rule.replace("<", "{").replace(">", "}"))
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    assert set(operations(api.get("/openapi.json").json)) == routed


def test_every_operation_is_described(api: FlaskClient) -> None:
    document = api.get("/openapi.json").json
    scopes = {(route.method, route.path): route.scope for noun in NOUNS for route in noun.routes}
    names = [operation["operationId"] for operation in operations(document).values()]
    assert len(names) == len(set(names))
    for key, operation in operations(document).items():
        assert operation["summary"]
        assert operation["tags"]
        scope = scopes[key]
        named = [] if scope == ANY_SCOPE else [scope]
        assert operation["security"] == ([] if scope is None else [{"token": named}, {"session": named}])
        parts = {part[1:-1] for part in key[1].split("/") if part.startswith("{")}
        assert {one["name"] for one in operation.get("parameters", []) if one["in"] == "path"} == parts
        for answer in operation["responses"].values():
            for link in answer.get("links", {}).values():
                assert link["operationId"] in names
            for kind in answer.get("description", "").split("`")[1::2]:
                if key[1].startswith("/runs") and kind.islower() and "-" in kind:
                    assert kind in KINDS


def test_openapi_document_names_the_registered_models(api: FlaskClient) -> None:
    document = api.get("/openapi.json").json
    assert document["components"]["schemas"]["RunRequest"]["properties"]["model"]["enum"] == registry.names()


def test_every_kind_of_problem_has_a_page(api: FlaskClient) -> None:
    listed = api.get("/problems").json["items"]
    assert [kind["type"] for kind in listed] == [f"/problems/{name}" for name in KINDS]
    for kind in listed:
        assert api.get(kind["type"]).json == kind
    assert api.get("/problems/nope").status_code == 404


def test_every_operation_rejects_unknown_query_parameters(api: FlaskClient) -> None:
    """A misspelled filter would otherwise return everything."""
    for method, path in operations(api.get("/openapi.json").json):
        if (method, path) == ("POST", "/session"):
            continue  # it needs a token
        there = re.sub(r"\{\w+\}", new_id(), path)
        answer = api.open(f"{there}?unknown=1", method=method, json={} if method == "POST" else None)
        assert (answer.status_code, b"unknown parameter" in answer.data) == (422, True), (method, path)
