"""Parsing JSON: accepted values are exact, and others are rejected with their location."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.domain.errors import NotCanonical
from holdfast.domain.strict_json import NotJson, parse


def refused(data: bytes | str, **limits: int) -> list[str]:
    with pytest.raises(NotCanonical) as caught:
        parse(data, **limits)
    assert not isinstance(caught.value, NotJson), caught.value
    return [problem.pointer for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b' {"a": [1, 2.5, "x", null, true]} \n', {"a": [1, 2.5, "x", None, True]}),
        ('"\\ud83d\\ude00 \\u003a \\\\u0000"', "\U0001f600 : \\u0000"),
        ("18446744073709551615", 2**64 - 1),
        ("-9223372036854775808", -(2**63)),
        ("1e300", 1e300),
        ("1e-400", 0.0),
        ('"12345678901234567890"', "12345678901234567890"),
        ('{"a":{"a":1},"b":{"a":1}}', {"a": {"a": 1}, "b": {"a": 1}}),
        ('{"a:b":":::"}', {"a:b": ":::"}),
        ("{}", {}),
    ],
)
def test_json_is_parsed(data: bytes | str, value: Any) -> None:
    read = parse(data)
    assert read == value
    assert type(read) is type(value)
    other = data.encode() if isinstance(data, str) else data.decode()
    assert parse(other) == value


@pytest.mark.parametrize(
    "data",
    [
        "",
        "{",
        "[1,]",
        '{"a":1,}',
        "{'a':1}",
        "nul",
        "01",
        "+1",
        ".5",
        "1.",
        "1 2",
        "[] x",
        '"\t"',
        '"\\x"',
        '"\\u12"',
        "// x",
        "\ufeff1",
        b"\xef\xbb\xbf1",
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"\xc0\x80"',
        '{"a":1}\0',
        "[1}",
        "]" * 100,
        "[" * 50 + "{" * 50,
    ],
)
def test_invalid_syntax_or_encoding_is_not_json(data: bytes | str) -> None:
    with pytest.raises(NotJson, match="not JSON") as caught:
        parse(data)
    assert [problem.pointer for problem in caught.value.problems] == [""]


def test_location_of_a_syntax_error_is_reported() -> None:
    with pytest.raises(NotJson, match="line 2, column 6"):
        parse('{"a":1,\n "b" 2}')


@pytest.mark.parametrize(
    ("data", "pointers"),
    [
        ('{"a":1,"a":1}', ["/a"]),
        ('{"x":[{"a":"p:q","b":0,"a":{"c":1}}]}', ["/x/0/a"]),
        ('{"a":1,"\\u0061":"\\u003a"}', ["/a"]),
        ('{"a":1,"a":2,"a":3,"b":0,"b":0}', ["/a", "/b"]),
        ('{"a":[NaN]}', ["/a/0"]),
        ('{"a":Infinity,"b":-Infinity}', ["/a", "/b"]),
        ('{"a":1e400}', ["/a"]),
        ('{"a":-1E+999}', ["/a"]),
        ('{"a":18446744073709551616}', ["/a"]),
        ("[-9223372036854775809]", ["/0"]),
        ('{"a":100000000000000000001}', ["/a"]),
        ('{"a":"\\u0000"}', ["/a"]),
        ('{"a":{"\\u0000":1}}', ["/a"]),
        ('["\\ud800"]', ["/0"]),
        ('{"a":["\\udc00\\ud800","x"]}', ["/a/0"]),
    ],
)
def test_rejected_values_have_a_pointer(data: str, pointers: list[str]) -> None:
    assert refused(data) == pointers
    assert refused(data.encode()) == pointers


def test_huge_digit_strings_are_rejected() -> None:
    assert refused('{"a":' + "9" * 1_000_000 + "}") == ["/a"]
    assert refused('{"a":-' + "9" * 5_000 + "}") == ["/a"]
    assert refused('{"a":1e' + "9" * 1_000_000 + "}") == ["/a"]


class TestDepth:
    def test_64_levels_are_accepted(self) -> None:
        assert parse("[" * 64 + "]" * 64) is not None
        assert parse('{"a":' * 64 + "1" + "}" * 64) is not None
        assert parse("[" + "[[]]," * 100 + "0]") is not None

    @pytest.mark.parametrize("levels", [65, 100, 1_000, 1_030, 100_000])
    def test_deeper_nesting_is_rejected_at_its_location(self, levels: int) -> None:
        assert refused("[" * levels + "]" * levels) == ["/0" * 64]
        assert refused('{"a":["[",' * levels + "1" + "]}" * levels) == ["/a/1" * 32]

    def test_brackets_in_strings_do_not_count_as_levels(self) -> None:
        assert parse('["' + "[" * 1000 + '\\"[\\\\"]') is not None
        assert refused('["]",' * 100 + "1" + ',"["]' * 100) == ["/1" * 64]

    def test_depth_limit_can_be_set(self) -> None:
        assert refused('{"a":[[]]}', max_depth=2) == ["/a/0"]
        assert parse("[" * 100 + "]" * 100, max_depth=100) is not None
