"""Parameter values that are not JSON: accepted if annotated, and passed to the task unchanged."""

from __future__ import annotations

import enum
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import orjson
import pytest
from annotated_types import Gt
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr, computed_field, field_serializer

from holdfast.domain.errors import BadParameters, NotCanonical
from holdfast.domain.tasks import Registry, Task
from holdfast.runtime.settings import Settings
from holdfast.verbs.requests import submit_request
from holdfast.verbs.submissions import prepare

SETTINGS = Settings()
BERLIN = timezone(timedelta(hours=2))
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1


@dataclass
class Point:
    x: float
    at: datetime


@dataclass(frozen=True, slots=True)
class Route:
    points: tuple[Point, ...] = ()
    by_day: dict[date, UUID] = field(default_factory=dict)


class Line(BaseModel):
    price: Decimal
    colours: set[Colour] = set()


class Order(BaseModel):
    number: int = Field(alias="no")
    at: datetime
    lines: list[Line]
    notes: Any = None

    @computed_field
    def total(self) -> Decimal:
        return sum((line.price for line in self.lines), Decimal())


class Urgent(Order):
    by: date


class Recorded(BaseModel):
    """Has its own serialization."""

    at: datetime

    @field_serializer("at", when_used="json")
    def in_its_own_way(self, at: datetime) -> str:
        return f"{at:%Y-%m-%d %H:%M}"


class Widget:
    pass


def task_of(hint: Any) -> Task:
    def fn(value): ...

    fn.__annotations__ = {} if hint is None else {"value": hint}
    made: Task = Registry().task("under_test")(fn)
    return made


def stored(hint: Any, value: Any) -> tuple[str, str]:
    new = prepare(SETTINGS, task_of(hint), {"value": value})
    return new.parameters, new.payload_hash


def given_back(hint: Any, value: Any) -> Any:
    """Return the value that the task receives."""
    text, _ = stored(hint, value)
    return task_of(hint).bind(orjson.loads(text))["value"]


def refusal(hint: Any, value: Any) -> tuple[str, str]:
    with pytest.raises(BadParameters) as caught:
        stored(hint, value)
    (problem,) = caught.value.problems
    assert problem.detail in str(caught.value)
    return problem.pointer, problem.detail


ORDER = Order(no=7, at=NOON, lines=[Line(price=Decimal("1.5"), colours={Colour.RED, Colour.BLUE})])


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (datetime, NOON),
        (datetime, datetime(2026, 5, 1, 12, 0, 0, 5)),  # noqa: DTZ001
        (datetime, datetime.min.replace(tzinfo=BERLIN)),
        (datetime | None, NOON),
        (datetime | str, NOON),
        (str | UUID, UUID(int=5)),
        (date, date(2026, 5, 1)),
        (time, time(3, 4)),
        (timedelta, timedelta(days=-3, microseconds=1)),
        (Decimal, Decimal("123456789012345678901234567890.123456789")),
        (Annotated[Decimal, Gt(0)], Decimal("1E-50")),
        (UUID, UUID(int=2**127)),
        (Colour, Colour.RED),
        (Size, Size.SMALL),
        (Point, Point(0.5, NOON)),
        (Route, Route((Point(1, NOON),), {date(2026, 5, 1): UUID(int=1)})),
        (Order, ORDER),
        (list[Order], [ORDER, ORDER]),
        (dict[str, list[date]], {"a": [date(2026, 5, 1)]}),
        (dict[int, str], {1: "one"}),
        (set[int], {3, 1, 2}),
        (bytes, b"text"),
    ],
)
def test_a_value_of_the_annotated_type_is_read_back_unchanged(hint: Any, value: Any) -> None:
    back = given_back(hint, value)
    assert back == value
    assert type(back) is type(value)


@given(st.timedeltas() | st.decimals(allow_nan=False, allow_infinity=False) | st.dates() | st.uuids())
def test_any_value_is_read_back_unchanged(value: Any) -> None:
    assert given_back(type(value), value) == value


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.timezones() | st.none()))  # noqa: DTZ001
def test_any_datetime_is_read_back_as_the_same_instant(value: datetime) -> None:
    back = given_back(datetime, value)
    assert back == (value if value.tzinfo is None else value.astimezone(UTC))


def test_json_for_an_annotated_parameter_is_stored_unchanged() -> None:
    assert stored(datetime, "2026-05-01T14:00:00+02:00")[0] == '{"value":"2026-05-01T14:00:00+02:00"}'
    assert stored(Order, {"no": 7, "at": "2026-05-01T12:00:00Z", "lines": []})


def test_a_dict_with_typed_values_becomes_a_model() -> None:
    back = given_back(Order, {"no": 7, "at": NOON, "lines": [{"price": Decimal("1.5"), "colours": {Colour.RED}}]})
    assert back == Order(no=7, at=NOON, lines=[Line(price=Decimal("1.5"), colours={Colour.RED})])


@pytest.mark.parametrize(
    ("hint", "one", "other"),
    [
        (datetime, NOON, NOON.astimezone(BERLIN)),
        (Order, ORDER, ORDER.model_copy(update={"at": NOON.astimezone(BERLIN)})),
        (Point, Point(1.0, NOON), Point(1, NOON.astimezone(BERLIN))),
        (Decimal, Decimal("1.50"), Decimal("1.5")),
        (Decimal, Decimal(100), Decimal("1E+2")),
        (Decimal, Decimal("-0.0"), Decimal(0)),
        (timedelta, timedelta(hours=25), timedelta(days=1, hours=1)),
        (set[str], {"a", "b", "c", "d"}, {"d", "c", "b", "a"}),
        (set[datetime], {NOON}, {NOON.astimezone(BERLIN)}),
        (UUID, UUID("AAAAAAAA-0000-4000-8000-000000000000"), UUID("aaaaaaaa-0000-4000-8000-000000000000")),
    ],
)
def test_equal_values_have_one_hash(hint: Any, one: Any, other: Any) -> None:
    assert one == other
    assert stored(hint, one) == stored(hint, other)


def test_a_time_without_a_zone_differs_from_one_with_a_zone() -> None:
    assert stored(datetime, NOON)[1] != stored(datetime, NOON.replace(tzinfo=None))[1]


def test_the_serialization_of_a_type_is_kept() -> None:
    pointer, _ = refusal(Recorded, Recorded(at=NOON))  # 2026-05-01 12:00 would be read as a time without a zone
    assert pointer == "/parameters/value/at"
    naive = NOON.replace(tzinfo=None)
    assert given_back(Recorded, Recorded(at=naive)) == Recorded(at=naive)


@pytest.mark.parametrize(
    ("hint", "value", "kind", "annotate"),
    [
        (None, NOON, "datetime.datetime", "datetime.datetime"),
        (str, date(2026, 5, 1), "datetime.date", "datetime.date"),
        (Any, Decimal(1), "decimal.Decimal", "decimal.Decimal"),
        (dict, {"a": [UUID(int=1)]}, "uuid.UUID", "dict[str, list[uuid.UUID]]"),
        (list[Any], [1, NOON], "datetime.datetime", "list[datetime.datetime]"),
        (str | None, Colour.RED, f"{__name__}.Colour", f"{__name__}.Colour"),
        (None, ORDER, f"{__name__}.Order", f"{__name__}.Order"),
    ],
)
def test_a_value_without_a_matching_annotation_is_refused_with_a_suggestion(
    hint: Any, value: Any, kind: str, annotate: str
) -> None:
    _, detail = refusal(hint, value)
    assert f"a value of type {kind} is not JSON, and parameter 'value' is " in detail
    assert f"annotate it with {annotate} " in detail


@pytest.mark.parametrize(
    ("hint", "value", "pointer", "expected"),
    [
        (tuple[Any, ...], (NOON,), "/0", "would receive str instead of datetime.datetime"),
        (Order, ORDER.model_copy(update={"notes": NOON}), "/notes", "would receive str instead of datetime.datetime"),
        (Order, Urgent(no=1, at=NOON, lines=[], by=date(2026, 5, 1)), "/by", "would not receive this"),
        (SecretStr, SecretStr("x"), "", "a different pydantic.types.SecretStr"),
        (float | Decimal | None, Decimal("NaN"), "", "finite number"),
        (datetime, date(2026, 5, 1), "", "valid datetime"),
        (date, datetime(2026, 5, 1), "", "valid date"),  # noqa: DTZ001
        (bytes, b"\xff", "", "cannot be written as JSON"),
        (None, Widget(), "", "Widget cannot be written as JSON; pass a string, number, list or object"),
    ],
)
def test_a_value_that_would_not_be_read_back_unchanged_is_refused(
    hint: Any, value: Any, pointer: str, expected: str
) -> None:
    where, detail = refusal(hint, value)
    assert where == f"/parameters/value{pointer}"
    assert expected in detail


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("hint", "value"),
    [(float, float("nan")), (dict, {1: "one"}), (Any, "\0"), (Any, LOOP), (list[datetime], LOOP)],
    ids=["nan", "key", "nul", "loop", "annotated loop"],
)
def test_json_that_cannot_be_stored_is_refused_as_before(hint: Any, value: Any) -> None:
    with pytest.raises(NotCanonical):
        stored(hint, value)


def test_all_parameters_are_named_at_once() -> None:
    def fn(a: str, b, c: date): ...

    made: Task = Registry().task("under_test")(fn)
    with pytest.raises(BadParameters) as caught:
        prepare(SETTINGS, made, {"a": NOON, "b": NOON, "c": NOON.date()})
    assert [problem.pointer for problem in caught.value.problems] == ["/parameters/a", "/parameters/b"]


def test_http_client_sends_the_same_text() -> None:
    at = NOON.astimezone(BERLIN)
    sent = orjson.loads(submit_request(task_of(datetime), {"value": at}).body or b"")
    assert sent["parameters"] == orjson.loads(stored(datetime, at)[0])
    with pytest.raises(BadParameters, match="annotate it with"):
        submit_request(task_of(str), {"value": at})


def test_ignored_paths_apply_to_encoded_values() -> None:
    def fn(order: Order): ...

    made: Task = Registry().task("under_test", ignore_in_hash=["order.at"])(fn)
    later = ORDER.model_copy(update={"at": NOON + timedelta(days=1)})
    hashes = {prepare(SETTINGS, made, {"order": one}).payload_hash for one in (ORDER, later)}
    assert len(hashes) == 1


def test_plain_parameters_do_not_import_the_encoding_of_others() -> None:
    program = """
import sys
from holdfast.verbs.submissions import prepare
from holdfast.domain.tasks import task
from holdfast.verbs.requests import submit_request
from holdfast.runtime.settings import Settings

@task("plain")
def plain(value): ...

prepare(Settings(), plain, {"value": [1, "a", None]})
assert "pydantic" not in sys.modules, "pydantic was imported"
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
