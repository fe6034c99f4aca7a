"""Limits: requests that are too large are refused before they are read, and hostile ones do no harm."""

from __future__ import annotations

import gc
import io
import resource
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from holdfast.runtime.settings import Settings
from tests.http.test_submit import pointers, problem

JSON = "application/json"


def post(api: FlaskClient, data: Any, **options: Any) -> Any:
    return api.post("/runs", data=data, content_type=JSON, **options)


def wrapped(parameters: bytes) -> bytes:
    return b'{"model":"mirror","dedupe":"off","parameters":' + parameters + b"}"


class Watched(io.BytesIO):
    """A body that records how much of it was read."""

    taken = 0

    def read(self, size: int | None = -1) -> bytes:
        piece = super().read(size)
        self.taken += len(piece)
        return piece


def test_body_above_the_limit_is_refused(settings: Settings, make_app: Callable[[Settings], Flask]) -> None:
    api = make_app(replace(settings, max_body_bytes=200)).test_client()
    frame = len(wrapped(b'{"x":""}'))

    def of(size: int) -> bytes:
        return wrapped(b'{"x":"' + b"y" * (size - frame) + b'"}')

    assert post(api, of(200)).status_code == 201
    answer = post(api, of(201))
    assert (answer.status_code, problem(answer)) == (413, "body-too-large")
    assert "200 bytes" in answer.json["detail"]


def test_body_above_the_limit_is_not_read(api: FlaskClient) -> None:
    body = Watched(b"x" * 100)
    environ = {"wsgi.input": body, "CONTENT_LENGTH": str(10**9), "CONTENT_TYPE": JSON, "REQUEST_METHOD": "POST"}
    assert api.open("/runs", method="POST", environ_overrides=environ).status_code == 413
    assert body.taken == 0


def test_a_body_in_chunks_is_read_up_to_the_limit(settings: Settings, make_app: Callable[[Settings], Flask]) -> None:
    api = make_app(replace(settings, max_body_bytes=100)).test_client()
    body = Watched(b"[" * 1_000_000)
    environ = {"wsgi.input": body, "wsgi.input_terminated": True, "CONTENT_LENGTH": "", "CONTENT_TYPE": JSON}
    assert api.open("/runs", method="POST", environ_overrides=environ).status_code == 413
    assert body.taken == 101


@pytest.mark.parametrize("length", ["-1", "x", "1_0", "²"])
def test_invalid_content_length_is_refused(api: FlaskClient, length: str) -> None:
    environ = {"wsgi.input": io.BytesIO(b"{}"), "CONTENT_LENGTH": length, "CONTENT_TYPE": JSON}
    assert api.open("/runs", method="POST", environ_overrides=environ).status_code == 400


@pytest.mark.parametrize(
    "given",
    ["text/plain", "", "application/x-www-form-urlencoded", "application/json; charset=latin-1", "application/jsonx"],
)
def test_body_of_another_media_type_is_refused(api: FlaskClient, given: str) -> None:
    answer = api.post("/runs", data=b'{"model":"mirror"}', headers={"Content-Type": given} if given else {})
    assert (answer.status_code, problem(answer)) == (415, "unsupported-media-type")


def test_json_with_a_utf8_charset_is_accepted(api: FlaskClient) -> None:
    answer = api.post("/runs", data=wrapped(b"{}"), headers={"Content-Type": 'Application/JSON; charset="UTF-8"'})
    assert answer.status_code == 201
    compressed = api.post("/runs", data=wrapped(b"{}"), content_type=JSON, headers={"Content-Encoding": "gzip"})
    assert compressed.status_code == 415


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nope",
        b'{"model":}',
        b"{'model':'mirror'}",
        b"\xef\xbb\xbf{}",
        b'{"model":"\xff"}',
        b'{"a":1}{"b":2}',
        b"01",
    ],
)
def test_body_that_is_not_json_is_a_400(api: FlaskClient, body: bytes) -> None:
    answer = post(api, body)
    assert (answer.status_code, problem(answer)) == (400, "not-json")


@pytest.mark.parametrize(
    ("parameters", "pointer"),
    [
        (b'{"x":1e131071}', "/parameters/x"),
        (b'{"x":NaN}', "/parameters/x"),
        (b'{"x":-Infinity}', "/parameters/x"),
        (b'{"x":1,"x":2}', "/parameters/x"),
        (b'{"\\u0078":1,"x":2}', "/parameters/x"),
        (b'{"x":"\\u0000"}', "/parameters/x"),
        (b'{"x":"\\ud800"}', "/parameters/x"),
        (b'{"x":{"\\udfff":1}}', None),
        (b'{"x":' + b"9" * 100_000 + b"}", "/parameters/x"),
        (b'{"x":18446744073709551616}', "/parameters/x"),
        (b'{"x":' + b"[" * 64 + b"]" * 64 + b"}", None),
        (b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", None),
        (b'{"x":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}", None),
        (b'{"a":[0,{"b/c":1e999}]}', "/parameters/a/1/b~1c"),
    ],
)
def test_values_that_cannot_be_stored_are_refused_by_pointer(
    api: FlaskClient, parameters: bytes, pointer: str | None
) -> None:
    answer = post(api, wrapped(parameters))
    assert (answer.status_code, problem(answer)) == (422, "refused-value")
    assert pointers(answer)[0].startswith("/parameters") if pointer is None else pointers(answer) == [pointer]
    assert len(answer.data) < 5000
    assert api.get("/runs").json["items"] == []


@pytest.mark.parametrize(
    "parameters",
    [
        b'{"x":18446744073709551615,"y":-9223372036854775808}',
        b'{"x":1.7976931348623157e308,"y":5e-324,"z":-0.0}',
        b'{"x":' + b"[" * 63 + b"]" * 63 + b"}",
        b'{"":"","\xf0\x9f\x98\x80":"\\ud83d\\ude00","\\n":"\\u001f"}',
        b'{"x":100000000000000000000}',
        b'{"x":1e21}',
    ],
)
def test_accepted_values_are_returned_unchanged(api: FlaskClient, parameters: bytes) -> None:
    import orjson

    made = post(api, wrapped(parameters))
    assert made.status_code == 201, made.text
    read = api.get(made.headers["Location"])
    assert read.data == made.data
    assert read.json["parameters"] == orjson.loads(parameters)
    again = post(api, orjson.dumps({"model": "mirror", "parameters": orjson.loads(read.data)["parameters"]}))
    assert again.json["payload_hash"] == made.json["payload_hash"]


def test_body_that_differs_from_its_digest_is_refused(api: FlaskClient) -> None:
    from base64 import b64encode
    from hashlib import sha256

    body = wrapped(b"{}")
    good = f"sha-256=:{b64encode(sha256(body).digest()).decode()}:"
    assert post(api, body, headers={"Content-Digest": good}).status_code == 201
    assert post(api, body, headers={"Content-Digest": "sha-512=:AAAA:"}).status_code == 201
    for bad in ("sha-256=:AAAA:", "sha-256=:A:", f"sha-256=:{b64encode(bytes(32)).decode()}:"):
        answer = post(api, body, headers={"Content-Digest": bad})
        assert (answer.status_code, problem(answer)) == (400, "bad-digest")


def test_depth_limit_of_parameters_does_not_depend_on_their_position(api: FlaskClient) -> None:
    def nested(depth: int) -> object:
        value: object = 1
        for _ in range(depth - 1):
            value = [value]
        return {"x": value}

    for depth, status in ((64, 201), (65, 422)):
        asked = nested(depth)
        answers = [
            api.post("/runs", json={"model": "mirror", "parameters": asked}),
            api.post("/batches", json={"runs": [{"model": "mirror", "parameters": asked, "dedupe": "off"}]}),
            api.post("/jobs", json={"name": "deep", "tasks": [{"entrypoint": "mirror", "kwargs": asked}]}),
        ]
        assert [answer.status_code for answer in answers] == [status] * 3
    for answer in answers:
        assert "nested more than 64 levels deep" in answer.json["detail"]


def test_hostile_bodies_leave_nothing_behind(api: FlaskClient) -> None:
    hostile = [
        wrapped(b'{"x":' + b"9" * 500_000 + b"}"),
        wrapped(b'{"x":' + b"[" * 200_000 + b"}"),
        wrapped(b'{"x":[' + b"1e131071," * 50_000 + b"1]}"),
        wrapped(b"{" + b",".join(b'"k":1' for _ in range(50_000)) + b"}"),
        wrapped(b'"' + b"\\ud800" * 100_000 + b'"'),
        b"[" * 1_000_000,
    ]

    def once() -> None:
        for body in hostile:
            answer = post(api, body)
            assert answer.status_code in (400, 422)
            assert len(answer.data) < 10_000

    once()
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(5):
        once()
    gc.collect()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024
