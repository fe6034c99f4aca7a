"""Canonical JSON against other implementations, over whatever Hypothesis can think of."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
import rfc8785
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from holdfast.domain.canonical import canonicalize, differences
from holdfast.domain.errors import NotCanonical
from holdfast.domain.strict_json import parse

many = settings(max_examples=200, deadline=None)

characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
strings = st.text(characters, max_size=12) | st.sampled_from(["\ufb33", "\U0001f600", '"\\', "\x7f\u2028", "a:b"])
finite = st.floats(allow_nan=False, allow_infinity=False)
doubles = finite | finite.map(lambda x: x % 1e22) | st.integers(-(10**22), 10**22).map(float)
integers = st.integers(-(2**63), 2**64 - 1)


def trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(leaves, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(strings, inner, max_size=5))


values = trees(st.none() | st.booleans() | strings | integers | doubles)
plain_values = trees(st.none() | st.booleans() | strings | st.integers(-(2**53) + 1, 2**53 - 1))


@many
@given(plain_values)
def test_same_text_as_the_reference_without_doubles(value: Any) -> None:
    assert canonicalize(value)[0] == rfc8785.dumps(value).decode()


@many
@given(trees(strings | doubles))
def test_same_text_as_the_reference_with_doubles_outside_our_extension(value: Any) -> None:
    assume(not any(2**53 < abs(x) <= 2**64 for x in numbers(value)))
    assert canonicalize(value)[0] == rfc8785.dumps(value).decode()


@many
@given(st.floats(allow_nan=False, allow_infinity=False))
@example(1e-5)
@example(9.999999999999999e-6)
@example(9999999999999998.0)
@example(1e16)
@example(999999999999999.9)
@example(-1.0000000000000001e-5)
def test_every_double_is_written_as_the_reference_does(value: float) -> None:
    expected = str(int(value)) if value.is_integer() and -(2**63) <= value < 2**64 else rfc8785.dumps(value).decode()
    assert canonicalize([value])[0] == f"[{expected}]"


@many
@given(values)
def test_what_is_written_is_read_back_to_the_same_text_and_hash(value: Any) -> None:
    written = canonicalize(value)
    for again in (parse(written[0]), parse(written[0].encode()), json.loads(written[0])):
        assert canonicalize(again) == written
        assert differences(value, again) == []


@many
@given(values)
def test_any_way_to_write_a_value_is_read_as_that_value(value: Any) -> None:
    expected = canonicalize(value)
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1), orjson.dumps(value)):
        assert canonicalize(parse(text)) == expected


@many
@given(values, values)
def test_texts_are_equal_exactly_if_nothing_differs(a: Any, b: Any) -> None:
    assert (canonicalize(a)[0] == canonicalize(b)[0]) == (differences(a, b) == [])


@many
@given(st.text(st.sampled_from('{}[]",:0123456789.eE+-\\u0a tnrfalsNI\ud800\0\ufeff'), max_size=25) | st.text())
def test_any_text_is_parsed_exactly_or_rejected(text: str) -> None:
    try:
        value = parse(text)
    except NotCanonical:
        return
    assert canonicalize(value) == canonicalize(orjson.loads(text))


@many
@given(st.binary(max_size=20))
def test_any_bytes_are_parsed_or_rejected(data: bytes) -> None:
    try:
        value = parse(data)
    except NotCanonical:
        return
    assert canonicalize(value) == canonicalize(orjson.loads(data))


@many
@given(values, st.data())
def test_duplicate_key_is_always_detected(value: Any, data: st.DataObject) -> None:
    key, first = data.draw(strings), data.draw(values)
    ascii_only = data.draw(st.booleans())

    def written(x: Any) -> str:
        return json.dumps(x, ensure_ascii=ascii_only)

    text = f'{{{written(key)}:{written(first)},"other":{written(value)},{json.dumps(key)}:1}}'
    with pytest.raises(NotCanonical) as caught:
        parse(text)
    expected = "/" + key.replace("~", "~0").replace("/", "~1")
    assert expected in [problem.pointer for problem in caught.value.problems]


def numbers(value: Any) -> list[float]:
    if isinstance(value, float):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [x for item in value for x in numbers(item)] if isinstance(value, list) else []
