"""Parsing of command-line arguments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import pytest

from holdfast.cli import output, values


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("a=text", "text"),
        ("a=12", 12),
        ("a=1.5", 1.5),
        ("a=true", True),
        ("a=null", None),
        ('a={"b": [1]}', {"b": [1]}),
        ('a="12"', "12"),
        ("a=", ""),
        ("a=b=c", "b=c"),
        ("a=NaN", "NaN"),
        ("a=1e999", "1e999"),
        ("a={broken", "{broken"),
        ('a={"b": 1, "b": 2}', '{"b": 1, "b": 2}'),
        ("a=ünï", "ünï"),
        ("a:=12", 12),
        ('a:="x"', "x"),
        ("a:={}", {}),
    ],
)
def test_a_value_is_json_if_it_parses_and_text_if_not(pair: str, value: object) -> None:
    found = values.parameters([pair], None)
    assert found == {"a": value}
    assert type(found["a"]) is type(value)


@pytest.mark.parametrize(
    "text", ["9" * 400, "99999999d", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "9999-06-01T00:00:00Z"]
)
def test_time_out_of_range_is_rejected(text: str) -> None:
    with pytest.raises(click.BadParameter):
        values.moment(text)


@pytest.mark.parametrize("pair", ["a", "=1", ":=1", "a:=NaN", "a:=text", "a:=", 'a:={"b":1,"b":2}'])
def test_argument_without_an_equals_sign_is_rejected(pair: str) -> None:
    with pytest.raises(click.UsageError):
        values.parameters([pair], None)


def test_long_value_is_shortened_in_the_error() -> None:
    with pytest.raises(click.UsageError) as refused:
        values.parameters(["a:=" + "1" * 5000], None)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5", 1.5), ("90s", 90), ("10m", 600), ("10min", 600), ("2h", 7200), ("1 d", 86400), ("+5m", 300)],
)
def test_durations_are_parsed(text: str, seconds: float) -> None:
    assert values.duration(text) == seconds
    assert values.moment(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "soon", "-5", "5 weeks", "1e3", "nan"])
def test_invalid_durations_are_rejected(text: str) -> None:
    with pytest.raises(click.BadParameter):
        values.duration(text)


def test_times_are_parsed() -> None:
    assert values.moment("2030-01-31T08:00:00Z") == datetime(2030, 1, 31, 8, tzinfo=UTC)
    for text in ("2030-01-31T08:00:00", "2030-01-31", "noon"):
        with pytest.raises(click.BadParameter):
            values.moment(text)


def test_control_characters_are_not_written_to_the_terminal() -> None:
    assert output.visible("plain ü 日本") == "plain ü 日本"
    assert "\x1b" not in output.visible("\x1b]0;title\x07")
    assert "\x9b" not in output.visible("\x9b31m")


def test_texts_are_shortened_by_display_width() -> None:
    assert output.width("日本") == 4
    assert output.width("e\u0301") == 1
    assert output.width(output.cut("日本語のテキスト", 7)) <= 7
