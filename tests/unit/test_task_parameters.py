"""Parameters are checked against the signature of a task."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge
from pydantic import Field

from holdfast.domain.canonical import canonicalize
from holdfast.domain.errors import BadParameters, ConfigurationError
from holdfast.domain.parameters import Within
from holdfast.domain.tasks import Registry, Task


def greet(name: str, times: int = 1) -> str:
    """Say hello."""
    return " ".join([f"hello {name}"] * times)


def task_of(fn: Callable[..., Any], **policies: Any) -> Task:
    made: Task = Registry().task("under_test", **policies)(fn)
    return made


def problems(task: Task, parameters: Mapping[str, Any]) -> dict[str, str]:
    with pytest.raises(BadParameters) as caught:
        task.check(parameters)
    return {problem.pointer: problem.detail for problem in caught.value.problems}


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: int


def untyped(a, b=1):  # type: ignore[no-untyped-def]
    """Has no annotations."""


@pytest.mark.parametrize("fn", [greet, untyped])
@pytest.mark.parametrize(
    "given",
    [{}, {"name": "Bo"}, {"name": 1}, {"name": "Bo", "times": True}, {"a": 1}, {"a": 1, "b": None}, {"a": 1, "c": 2}],
)
def test_fast_check_accepts_exactly_what_the_full_check_accepts(fn: Callable[..., Any], given: dict[str, Any]) -> None:
    task = task_of(fn)
    text = canonicalize(given)[0]
    try:
        task.parameters.fit(text)
    except ValueError:
        assert problems(task, given)
    else:
        task.check(given, text)


def test_fast_check_leaves_references_to_the_full_check() -> None:
    def sliced(view: int) -> None:
        """Receives a view, whose type is checked when it is opened."""

    task, given = task_of(sliced), {"view": {"$view": {}}}
    with pytest.raises(ValueError, match="int_type"):
        task.parameters.fit(canonicalize(given)[0])
    task.check(given)


def test_fast_check_accepts_no_other_name_for_a_parameter() -> None:
    def renamed(size: Annotated[int, Field(alias="length")]) -> None:
        """Its runs still pass `size`."""

    task = task_of(renamed)
    with pytest.raises(ValueError, match=r"^$"):
        task.parameters.fit('{"length":1}')
    assert problems(task, {"length": 1})


def test_fast_check_leaves_more_members_of_a_nested_object_to_the_full_check() -> None:
    def draw(point: Point, *, label: str = "", **more: Any) -> None:
        """Takes other parameters too."""

    task = task_of(draw)
    for given in ({"point": {"x": 1, "y": 2}}, {"point": {"x": 1, "y": 2}, "more": [1]}):
        task.parameters.fit(canonicalize(given)[0])
        task.check(given)


class TestCheck:
    def test_valid_parameters_are_accepted(self) -> None:
        task_of(greet).check({"name": "you"})
        task_of(greet).check({"name": "you", "times": 2})

    def test_all_problems_are_reported_together(self) -> None:
        found = problems(task_of(greet), {"times": "2", "nmae": "you", "x/y": 1})
        assert found == {
            "/name": "missing",
            "/nmae": "unknown parameter; did you mean name?",
            "/x~1y": "unknown parameter",
            "/times": "Input should be a valid integer",
        }

    def test_the_message_names_the_task(self) -> None:
        with pytest.raises(BadParameters, match=r"'under_test': /name: missing"):
            task_of(greet).check({})

    @pytest.mark.parametrize(
        ("hint", "good", "bad"),
        [
            (int, [1, -5, 2**64 - 1, 1.0], ["1", True, 1.5, None]),
            (float, [1, 1.5], ["1", True]),
            (str, ["", "x"], [1, None]),
            (bool, [True], [1, "true"]),
            (dict, [{}, {"a": 1}], [[], "x"]),
            (list[int], [[], [1, 2]], [["1"], {}]),
            (int | None, [1, None], ["1"]),
            (Literal["a", "b"], ["a"], ["c", 1]),
            (date, ["2026-01-05"], ["yesterday", 5]),
            (Colour, ["red"], ["blue"]),
            (Point, [{"x": 1, "y": 2}], [{"x": 1}, {"x": "1", "y": 2}, [1, 2]]),
            (tuple[int, str], [[1, "a"]], [["a", 1], [1]]),
            (Annotated[int, Ge(1)], [1], [0]),
            (Annotated[int, Within(1)], [1, 2], [0]),
            (Annotated[float, Within(0, 2)], [0, 1.5, 2], [-1, 2.5]),
            (Any, [1, None, {}], []),
        ],
        ids=str,
    )
    def test_types_are_strict_json(self, hint: Any, good: list[Any], bad: list[Any]) -> None:
        def fn(value: Any) -> None: ...

        fn.__annotations__ = {"value": hint}
        checked = task_of(fn)
        for value in good:
            checked.check({"value": value})
        for value in bad:
            assert {pointer.split("/")[1] for pointer in problems(checked, {"value": value})} == {"value"}

    def test_pointers_name_the_exact_location(self) -> None:
        def fn(points: list[Point], choice: int | list[bool], by_name: dict[str, Point]) -> None: ...

        parameters = {
            "points": [{"x": 1, "y": 2}, {"x": 1}],
            "choice": [True, "x"],
            "by_name": {"a/b": {"x": 1, "y": ""}},
        }
        found = problems(task_of(fn), parameters)
        assert found["/points/1/y"] == "missing"
        assert found["/by_name/a~1b/y"] == "Input should be a valid integer"
        assert "/choice/1" in found
        assert all(not pointer.endswith(("int", "bool")) for pointer in found)

    def test_default_of_none_allows_null(self) -> None:
        def fn(note: str = None) -> None: ...  # noqa: RUF013

        task_of(fn).check({"note": None})
        assert problems(task_of(fn), {"note": 1})

    def test_other_names_are_passed_as_kwargs(self) -> None:
        def fn(a: int, **rest: Any) -> None: ...

        task_of(fn).check({"a": 1, "b": 2})
        assert problems(task_of(fn), {"b": 2}) == {"/a": "missing"}

    def test_without_annotations_only_names_are_checked(self) -> None:
        def fn(a, *, b=None): ...

        task_of(fn).check({"a": object})
        assert problems(task_of(fn), {"b": 1, "c": 1}) == {"/a": "missing", "/c": "unknown parameter"}

    def test_names_reserved_by_pydantic_are_accepted(self) -> None:
        def fn(schema: str, model_config: int, copy: bool, _private: int) -> None: ...

        fine = {"schema": "x", "model_config": 1, "copy": True, "_private": 1}
        task_of(fn).check(fine)
        assert list(problems(task_of(fn), {**fine, "_private": "1"})) == ["/_private"]

    def test_canonical_text_may_be_passed(self) -> None:
        with pytest.raises(BadParameters):
            task_of(greet).check({"name": 1}, '{"name":1}')

    def test_unresolvable_return_annotation_is_ignored(self) -> None:
        def fn(a: int) -> Nowhere: ...  # type: ignore[name-defined]  # noqa: F821

        assert problems(task_of(fn), {"a": "1"})

    def test_callable_objects_and_partials_are_accepted(self) -> None:
        class Adder:
            def __call__(self, a: int, b: date) -> Any:
                return a, b

        async def later(a: int) -> int:
            return a

        for fn in (Adder(), functools.partial(Adder())):
            assert problems(task_of(fn), {"a": "1", "b": "2026-01-05"}).keys() == {"/a"}
            assert task_of(fn).call({"a": 1, "b": "2026-01-05"}) == (1, date(2026, 1, 5))
        assert task_of(functools.partial(later, a=1)).is_async

    def test_type_that_json_cannot_represent_is_rejected(self) -> None:
        class Odd: ...

        def fn(x: Any) -> None: ...

        fn.__annotations__ = {"x": Odd}
        with pytest.raises(ConfigurationError, match=r"under_test.*JSON"):
            task_of(fn).check({"x": 1})

    def test_ignored_fields_may_be_sent_to_a_function_that_does_not_accept_them(self) -> None:
        noted = task_of(greet, ignore_in_hash=("requested_at", "client.name"))
        sent = {"name": "you", "requested_at": "now", "client": {"name": "x"}}
        noted.check(sent)
        assert noted.bind(sent) == {"name": "you"}
        assert noted.call(sent) == "hello you"


class TestBind:
    @pytest.mark.parametrize(
        "hint",
        [
            str,
            int,
            float,
            bool,
            dict,
            list,
            Any,
            None,
            dict[str, Any],
            list[dict[str, int]],
            str | None,
            int | list[str],
            Literal["a", 1],
            Annotated[int, Ge(0)],
            Sequence[int],
            Mapping[str, float],
        ],
        ids=str,
    )
    def test_plain_types_are_passed_unchanged(self, hint: Any) -> None:
        def fn(value: Any) -> None: ...

        fn.__annotations__ = {"value": hint}
        parameters = {"value": object()}
        assert task_of(fn).bind(parameters) is parameters

    def test_other_types_are_converted(self) -> None:
        def fn(on: date, at: Point, which: Colour, pair: tuple[int, int], plain: str, late: date | None = None) -> Any:
            return on, at, which, pair, plain, late

        sent = {"on": "2026-01-05", "at": {"x": 1, "y": 2}, "which": "red", "pair": [1, 2], "plain": "x"}
        assert task_of(fn).call(sent) == (date(2026, 1, 5), Point(1, 2), Colour.RED, (1, 2), "x", None)
        assert sent["on"] == "2026-01-05"

    def test_stored_parameters_that_no_longer_match_are_rejected(self) -> None:
        def fn(on: date) -> None: ...

        with pytest.raises(BadParameters) as caught:
            task_of(fn).bind({"on": "never"})
        assert caught.value.problems[0].pointer == "/on"

    def test_kwargs_are_kept(self) -> None:
        def fn(on: date, **rest: Any) -> Any:
            return on, rest

        assert task_of(fn).call({"on": "2026-01-05", "more": [1]}) == (date(2026, 1, 5), {"more": [1]})


class TestSchema:
    def test_schema_has_names_types_and_defaults(self) -> None:
        def fn(
            n: Annotated[int, Ge(1)], at: Point, anything, when: date = date(2026, 1, 5), note: str = "x"
        ) -> None: ...

        schema = task_of(fn, ignore_in_hash=("client",)).schema()
        assert schema["type"] == "object"
        assert schema["required"] == ["n", "at", "anything"]
        assert schema["additionalProperties"] is False
        assert list(schema["properties"]) == ["n", "at", "anything", "when", "note", "client"]
        assert schema["properties"]["n"] == {"minimum": 1, "type": "integer"}
        assert schema["properties"]["when"] == {"format": "date", "type": "string"}
        assert schema["properties"]["note"] == {"type": "string", "default": "x"}
        assert schema["properties"]["at"] == {"$ref": "#/$defs/Point"}
        assert schema["$defs"]["Point"]["required"] == ["x", "y"]

    def test_schema_with_kwargs_allows_more_properties(self) -> None:
        def fn(**rest: Any) -> None: ...

        assert task_of(fn).schema()["additionalProperties"] is True
