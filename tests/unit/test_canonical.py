"""Canonical JSON: the test vectors of RFC 8785, Holdfast's extension to it, and rejected values."""

from __future__ import annotations

import enum
import hashlib
import json
import struct
from collections import OrderedDict
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from holdfast.domain.canonical import canonicalize, differences
from holdfast.domain.errors import NotCanonical
from holdfast.domain.strict_json import parse


def text_of(value: Any) -> str:
    return canonicalize(value)[0]


def hash_of(value: Any, *ignore: str) -> str:
    return canonicalize(value, ignore)[1]


def refused(value: Any) -> list[tuple[str, str]]:
    with pytest.raises(NotCanonical) as caught:
        canonicalize(value)
    return [(problem.pointer, problem.detail) for problem in caught.value.problems]


NUMBERS_OF_THE_RFC = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333",
    "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}


@pytest.mark.parametrize(("bits", "text"), NUMBERS_OF_THE_RFC.items())
def test_numbers_of_rfc_8785_are_written_as_specified(bits: str, text: str) -> None:
    (double,) = struct.unpack(">d", bytes.fromhex(bits))
    assert text_of(double) == text
    assert text_of([0.5, {"a": double}]) == f'[0.5,{{"a":{text}}}]'
    assert text_of(parse(text)) == text


@pytest.mark.parametrize("bits", ["7fffffffffffffff", "7ff0000000000000", "fff0000000000000"])
def test_non_finite_numbers_of_rfc_8785_are_rejected(bits: str) -> None:
    (double,) = struct.unpack(">d", bytes.fromhex(bits))
    assert refused(double)[0][0] == ""


def test_structure_of_rfc_8785_is_written_as_specified() -> None:
    source = r"""{
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"""
    assert text_of(parse(source)) == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_keys_of_rfc_8785_are_sorted_as_specified() -> None:
    names = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    assert list(json.loads(text_of(dict.fromkeys(names, 1)))) == [
        "\r",
        "1",
        "\u0080",
        "\u00f6",
        "\u20ac",
        "\U0001f600",
        "\ufb33",
    ]


def test_hash_is_the_sha256_of_the_text() -> None:
    for value in ({"b": 1, "a": [None, 0.5]}, {"a": 1.0}, {"\U0001f600": "ü"}):
        text, digest = canonicalize(value)
        assert digest == hashlib.sha256(text.encode()).hexdigest()


class TestNumbers:
    def test_equal_numbers_have_equal_text(self) -> None:
        assert {hash_of({"a": one}) for one in (1, 1.0, parse("1e0"), parse("10E-1"))} == {hash_of({"a": 1})}
        assert {text_of(zero) for zero in (0, 0.0, -0.0, parse("-0"), parse("-0.0"))} == {"0"}

    def test_true_differs_from_one(self) -> None:
        assert text_of([True, 1, False, 0]) == "[true,1,false,0]"

    def test_integers_of_64_bits_are_exact(self) -> None:
        for value in (2**53, 2**53 + 1, 2**63, 2**64 - 1, -(2**53) - 1, -(2**63)):
            assert text_of({"a": value}) == f'{{"a":{value}}}'
            assert parse(text_of(value)) == value
        assert hash_of(2**53) != hash_of(2**53 + 1)

    def test_whole_double_in_the_64_bit_range_equals_the_integer(self) -> None:
        assert text_of(1e16) == "10000000000000000"
        assert text_of(1e18) == "1000000000000000000"
        assert text_of(2.0**60) == str(2**60)
        assert hash_of(2.0**63) == hash_of(2**63)
        assert hash_of(-(2.0**63)) == hash_of(-(2**63))

    def test_larger_doubles_are_written_as_in_ecmascript(self) -> None:
        assert text_of(2.0**64) == "18446744073709552000"
        assert text_of(1e20) == "100000000000000000000"
        assert text_of(1e21) == "1e+21"
        assert text_of(1e300) == "1e+300"
        assert text_of(-1e19) == "-10000000000000000000"

    @pytest.mark.parametrize(
        "value", [2**64, -(2**63) - 1, 2**65, 10**21, 10**30, -(10**400), pytest.param(10**5000, id="5000 digits")]
    )
    def test_larger_integers_are_rejected(self, value: int) -> None:
        ((pointer, detail),) = refused({"deep": [0, value]})
        assert pointer == "/deep/1"
        assert "2^64-1" in detail
        assert "string" in detail

    @pytest.mark.parametrize("value", [1e16, 1.5e19, 2.0**64, 1e20, 9.99e20, 1e21, -1e19, 1e300, 5e-324, 1e-7, 0.1])
    def test_written_text_is_read_back_unchanged(self, value: float) -> None:
        written = canonicalize({"a": value})
        assert canonicalize(parse(written[0])) == written
        assert canonicalize(json.loads(written[0])) == written


class TestIgnoredFields:
    def test_difference_in_an_ignored_field_gives_the_same_hash(self) -> None:
        a = {"scenario": "x", "requested_at": "today", "client": {"name": "a", "region": "AU"}}
        b = {"scenario": "x", "client": {"name": "b", "region": "AU"}}
        assert hash_of(a, "requested_at", "client.name") == hash_of(b, "requested_at", "client.name")
        assert hash_of(a, "client.name") != hash_of(b, "client.name")

    def test_text_contains_ignored_fields(self) -> None:
        text, digest = canonicalize({"a": 1, "b": 2}, ("b",))
        assert text == '{"a":1,"b":2}'
        assert digest == hash_of({"a": 1})

    def test_ignored_path_that_does_not_exist_changes_nothing(self) -> None:
        value = {"a": {"b": 1}, "c": [1]}
        assert hash_of(value, "x", "a.x", "a.b.c", "c.0") == hash_of(value)
        assert hash_of([1], "a") == hash_of([1])

    def test_ignored_fields_work_with_values_that_need_the_slow_path(self) -> None:
        assert hash_of({"\U0001f600": 1.0, "\ufb33": 2, "x": 1}, "x") == hash_of({"\U0001f600": 1, "\ufb33": 2})


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class OwnHash(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__


class Double(float):
    pass


class Plain(enum.Enum):
    X = "x"


class TestTypes:
    def test_subclasses_are_written_like_their_base_type(self) -> None:
        value = OrderedDict([("b", (Colour.RED, Level.HIGH)), (Colour.RED, Double(1.5))])
        assert text_of(value) == '{"b":["red",3],"red":1.5}'

    def test_tuple_is_written_as_a_list(self) -> None:
        assert canonicalize((1, (2, "x"))) == canonicalize([1, [2, "x"]])

    @pytest.mark.parametrize(
        "value",
        [
            uuid4(),
            datetime.now(UTC),
            datetime.now(UTC).date(),
            Decimal(1),
            {1},
            b"x",
            object(),
            Plain.X,
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_other_types_are_rejected(self, value: Any) -> None:
        ((pointer, detail),) = refused({"list": [1, {"x": value}]})
        assert pointer == "/list/1/x"
        assert type(value).__name__ in detail


class TestRefused:
    @pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
    def test_non_finite_numbers_are_rejected(self, value: float) -> None:
        assert refused({"a": [None, value]})[0][0] == "/a/1"

    @pytest.mark.parametrize("text", ["\0", "a\0b", "ü\0", "\ud800", "x\udfffy", "\udc00\ud800"])
    def test_nul_and_lone_surrogates_are_rejected(self, text: str) -> None:
        assert refused({"a": {"b": text}})[0][0] == "/a/b"
        ((pointer, detail),) = refused({"a": {text: 1}})
        assert pointer == "/a"
        assert detail.isascii()

    def test_text_backslash_u0000_is_not_nul(self) -> None:
        assert json.loads(text_of({"a": r"\u0000"})) == {"a": r"\u0000"}

    @pytest.mark.parametrize("key", [1, None, 1.5, True, (1, 2), pytest.param(10**5000, id="5000 digits")])
    def test_keys_that_are_not_strings_are_rejected(self, key: Any) -> None:
        ((pointer, detail),) = refused([{key: 1}])
        assert pointer == "/0"
        assert type(key).__name__ in detail

    def test_two_keys_with_equal_text_are_rejected(self) -> None:
        assert refused({OwnHash("a"): 1, "a": 2})[0][0] == "/a"

    def test_too_deep_nesting_is_rejected(self) -> None:
        def nested(levels: int) -> Any:
            value: Any = []
            for _ in range(levels - 1):
                value = [value]
            return value

        assert text_of(nested(64)) == "[" * 64 + "]" * 64
        assert refused(nested(65)) == [("/0" * 64, "nested more than 64 levels deep; reduce the nesting")]
        assert refused(nested(20_000))[0][0] == "/0" * 64

    def test_value_that_contains_itself_is_rejected(self) -> None:
        cycle: dict[str, Any] = {}
        cycle["again"] = [cycle]
        assert refused(cycle) == [("/again/0", "the value contains itself")]

    def test_pointers_are_escaped(self) -> None:
        assert refused({"a/b": {"~": float("nan")}})[0][0] == "/a~1b/~0"

    def test_all_problems_are_reported_up_to_a_limit(self) -> None:
        assert [pointer for pointer, _ in refused({"a": float("nan"), "b": "\0", "c": 1})] == ["/a", "/b"]
        assert len(refused([float("nan")] * 1000)) == 20

    def test_message_names_the_location_and_the_remedy(self) -> None:
        with pytest.raises(NotCanonical, match=r"at /a: NaN.*send null.*\(and 1 more\)"):
            canonicalize({"a": float("nan"), "b": float("nan")})


class TestDifferences:
    def test_equal_values_have_no_differences(self) -> None:
        assert differences({"a": [1, 1.0, 0]}, {"a": [1.0, 1, -0.0]}) == []
        assert differences({"a": (1, 2)}, {"a": [1, 2]}) == []
        assert differences(float(2**68), 295147905179352830000) == []

    def test_each_difference_has_its_pointer(self) -> None:
        a = {"same": 1, "changed": {"x": 1, "y/z": [1, 2]}, "gone": None, "kind": True}
        b = {"same": 1, "changed": {"x": 2, "y/z": [1, 3, 4]}, "new": None, "kind": 1}
        expected = ["/changed/x", "/changed/y~1z/1", "/changed/y~1z/2", "/gone", "/kind", "/new"]
        assert differences(a, b) == expected

    def test_values_of_different_types_differ(self) -> None:
        assert differences([1, "1", None, {}, False], ["1", 1, False, [], 0]) == ["/0", "/1", "/2", "/3", "/4"]
        assert differences(1, 2) == [""]
        assert differences(2**53, 2**53 + 1) == [""]

    def test_number_of_differences_is_limited(self) -> None:
        assert differences([1] * 1000, [2] * 1000, limit=3) == ["/0", "/1", "/2"]
        assert len(differences([1] * 1000, [2] * 1000)) == 20
