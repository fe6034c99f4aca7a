"""Tasks: the decorator, the registry, and how parameters meet a signature."""

from __future__ import annotations

import asyncio
import enum
import functools
import importlib
import inspect
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge

from holdfast.domain import tasks
from holdfast.domain.errors import BadParameters, ConfigurationError, UnknownTask
from holdfast.domain.policies import Retry
from holdfast.domain.tasks import Registry, Task, load_modules
from holdfast.domain.tasks import registry as global_registry


@pytest.fixture
def registry() -> Registry:
    return Registry()


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


class TestDecorator:
    def test_bare_it_takes_the_name_of_the_function(self, registry: Registry) -> None:
        made = registry.task(greet)
        assert made.name == f"{__name__}.greet"
        assert registry.get(made.name) is made

    def test_a_name_and_policies(self, registry: Registry) -> None:
        retry = Retry(max_attempts=5)
        made = registry.task(
            "hello",
            queue="polite",
            priority=-3,
            timeout=timedelta(minutes=1),
            retry=retry,
            ignore_in_hash=["client.name"],
            dedupe="active",
            executor="inline",
            tags=["a", "b"],
            resources={"cpu": 1},
        )(greet)
        assert (made.name, made.queue, made.priority, made.timeout) == ("hello", "polite", -3, timedelta(minutes=1))
        assert (made.retry, made.ignore_in_hash, made.dedupe) == (retry, ("client.name",), "active")
        assert (made.executor, made.tags, made.resources) == ("inline", ("a", "b"), {"cpu": 1})

    def test_the_defaults(self, registry: Registry) -> None:
        made = registry.task()(greet)
        assert (made.queue, made.priority, made.timeout, made.retry) == ("default", 0, None, None)
        assert (made.ignore_in_hash, made.dedupe, made.executor, made.tags) == ((), "off", None, ())
        assert not made.is_async

    def test_it_is_still_called_like_the_function(self, registry: Registry) -> None:
        made = registry.task(greet)
        assert made("you", times=2) == "hello you hello you"
        assert (made.__name__, made.__doc__, made.__module__) == ("greet", "Say hello.", __name__)
        assert inspect.signature(made) == inspect.signature(greet)
        assert made.fn is greet

    def test_async(self, registry: Registry) -> None:
        @registry.task
        async def double(x: int) -> int:
            return 2 * x

        assert double.is_async
        assert asyncio.run(double(2)) == 4
        assert asyncio.run(double.call({"x": 3})) == 6

    def test_the_global_one(self) -> None:
        assert isinstance(global_registry, Registry)
        assert tasks.task == global_registry.task

    @pytest.mark.parametrize(
        ("policies", "says"),
        [
            ({"name": ""}, "name"),
            ({"name": "x" * 256}, "name"),
            ({"name": "a\0"}, "name"),
            ({"queue": ""}, "queue"),
            ({"priority": 101}, "priority"),
            ({"priority": 1.0}, "priority"),
            ({"timeout": 5}, "timeout"),
            ({"timeout": timedelta(0)}, "timeout"),
            ({"retry": 3}, "retry"),
            ({"dedupe": "sometimes"}, "dedupe"),
            ({"dedupe": -1}, "dedupe"),
            ({"executor": "magic"}, "executor"),
            ({"ignore_in_hash": "client"}, "sequence"),
            ({"tags": "x"}, "sequence"),
            ({"tags": [1]}, "tags"),
            ({"resources": 5}, "resources"),
        ],
    )
    def test_policies_that_make_no_sense(self, registry: Registry, policies: dict[str, Any], says: str) -> None:
        with pytest.raises(ConfigurationError, match=says):
            registry.task(**policies)(greet)
        assert registry.names() == []

    def test_functions_that_make_no_sense(self, registry: Registry) -> None:
        def positional(a: int, /) -> None: ...

        def yields() -> Any:
            yield 1

        with pytest.raises(ConfigurationError, match="positional-only"):
            registry.task(positional)
        with pytest.raises(ConfigurationError, match="yields"):
            registry.task(yields)
        with pytest.raises(ConfigurationError, match="class"):
            registry.task(dict)
        with pytest.raises(ConfigurationError, match="give it one"):
            registry.task(functools.partial(greet, "you"))
        with pytest.raises(TypeError):
            registry.task("x", colour="red")(greet)


class TestRegistry:
    def test_an_unknown_name(self, registry: Registry) -> None:
        registry.task("known")(greet)
        with pytest.raises(UnknownTask, match=r"'os\.system'.*known"):
            registry.get("os.system")
        assert registry.find("os.system") is None
        assert registry.names() == ["known"]

    def test_two_functions_cannot_share_a_name(self, registry: Registry) -> None:
        def other() -> None: ...

        registry.task("same")(greet)
        with pytest.raises(ConfigurationError, match=r"'same'.*greet.*test_tasks\.py.*other.*test_tasks\.py"):
            registry.task("same")(other)
        assert registry.get("same").fn is greet

    def test_two_local_functions_of_one_name_are_two(self, registry: Registry) -> None:
        @registry.task("same")
        def local() -> None: ...

        with pytest.raises(ConfigurationError, match="two tasks"):

            @registry.task("same")
            def local() -> None: ...

    def test_the_same_function_may_come_again(self, registry: Registry) -> None:
        registry.task("same")(greet)
        again = registry.task("same", queue="new")(greet)
        assert registry.get("same") is again


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(global_registry, "_tasks", dict(global_registry._tasks))
    return tmp_path


class TestLoading:
    def test_modules_register_their_tasks(self, modules: Path) -> None:
        (modules / "hf_good.py").write_text(
            "from holdfast.domain.tasks import task\n@task('hf.good')\ndef good(x: int): ...\n"
        )
        load_modules(["hf_good"])
        first = global_registry.get("hf.good")
        importlib.reload(sys.modules["hf_good"])
        assert global_registry.get("hf.good") is not first

    def test_one_that_is_not_there(self) -> None:
        with pytest.raises(ConfigurationError, match=r"'hf_absent'.*ModuleNotFoundError"):
            load_modules(["hf_absent"])

    def test_one_that_fails(self, modules: Path) -> None:
        (modules / "hf_broken.py").write_text("1 / 0\n")
        with pytest.raises(ConfigurationError, match=r"'hf_broken'.*ZeroDivisionError: division by zero"):
            load_modules(["hf_broken"])

    @pytest.mark.parametrize("name", ["tasks.py", "a/b", "", "a..b", ".relative", "a b"])
    def test_what_is_no_name(self, name: str) -> None:
        with pytest.raises(ConfigurationError, match=r"dotted names"):
            load_modules([name])

    def test_an_annotation_that_means_nothing_is_found_at_once(self, modules: Path) -> None:
        (modules / "hf_vague.py").write_text(
            "from holdfast.domain.tasks import task\n@task('hf.vague')\ndef vague(x: 'Nowhere'): ...\n"
        )
        with pytest.raises(ConfigurationError, match=r"hf\.vague.*Nowhere"):
            load_modules(["hf_vague"])


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: int


class TestCheck:
    def test_what_fits(self) -> None:
        task_of(greet).check({"name": "you"})
        task_of(greet).check({"name": "you", "times": 2})

    def test_all_problems_are_told_at_once(self) -> None:
        told = problems(task_of(greet), {"times": "2", "nmae": "you", "x/y": 1})
        assert told == {
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

    def test_pointers_lead_to_the_spot(self) -> None:
        def fn(points: list[Point], choice: int | list[bool], by_name: dict[str, Point]) -> None: ...

        parameters = {
            "points": [{"x": 1, "y": 2}, {"x": 1}],
            "choice": [True, "x"],
            "by_name": {"a/b": {"x": 1, "y": ""}},
        }
        told = problems(task_of(fn), parameters)
        assert told["/points/1/y"] == "missing"
        assert told["/by_name/a~1b/y"] == "Input should be a valid integer"
        assert "/choice/1" in told
        assert all(not pointer.endswith(("int", "bool")) for pointer in told)

    def test_a_default_of_none_admits_null(self) -> None:
        def fn(note: str = None) -> None: ...  # noqa: RUF013

        task_of(fn).check({"note": None})
        assert problems(task_of(fn), {"note": 1})

    def test_any_further_names_go_to_kwargs(self) -> None:
        def fn(a: int, **rest: Any) -> None: ...

        task_of(fn).check({"a": 1, "b": 2})
        assert problems(task_of(fn), {"b": 2}) == {"/a": "missing"}

    def test_without_annotations_only_names_count(self) -> None:
        def fn(a, *, b=None): ...

        task_of(fn).check({"a": object})
        assert problems(task_of(fn), {"b": 1, "c": 1}) == {"/a": "missing", "/c": "unknown parameter"}

    def test_names_that_pydantic_keeps_for_itself(self) -> None:
        def fn(schema: str, model_config: int, copy: bool, _private: int) -> None: ...

        fine = {"schema": "x", "model_config": 1, "copy": True, "_private": 1}
        task_of(fn).check(fine)
        assert list(problems(task_of(fn), {**fine, "_private": "1"})) == ["/_private"]

    def test_the_canonical_text_may_be_handed_in(self) -> None:
        with pytest.raises(BadParameters):
            task_of(greet).check({"name": 1}, '{"name":1}')

    def test_a_return_type_that_only_a_checker_knows(self) -> None:
        def fn(a: int) -> Nowhere: ...  # type: ignore[name-defined]  # noqa: F821

        assert problems(task_of(fn), {"a": "1"})

    def test_callables_of_other_kinds(self) -> None:
        class Adder:
            def __call__(self, a: int, b: date) -> Any:
                return a, b

        async def later(a: int) -> int:
            return a

        for fn in (Adder(), functools.partial(Adder())):
            assert problems(task_of(fn), {"a": "1", "b": "2026-01-05"}).keys() == {"/a"}
            assert task_of(fn).call({"a": 1, "b": "2026-01-05"}) == (1, date(2026, 1, 5))
        assert task_of(functools.partial(later, a=1)).is_async

    def test_a_type_that_json_cannot_hold(self) -> None:
        class Odd: ...

        def fn(x: Any) -> None: ...

        fn.__annotations__ = {"x": Odd}
        with pytest.raises(ConfigurationError, match=r"under_test.*JSON"):
            task_of(fn).check({"x": 1})

    def test_ignored_fields_may_be_sent_to_a_function_that_does_not_take_them(self) -> None:
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
    def test_plain_types_are_handed_on_unchanged(self, hint: Any) -> None:
        def fn(value: Any) -> None: ...

        fn.__annotations__ = {"value": hint}
        parameters = {"value": object()}
        assert task_of(fn).bind(parameters) is parameters

    def test_others_are_converted(self) -> None:
        def fn(on: date, at: Point, which: Colour, pair: tuple[int, int], plain: str, late: date | None = None) -> Any:
            return on, at, which, pair, plain, late

        sent = {"on": "2026-01-05", "at": {"x": 1, "y": 2}, "which": "red", "pair": [1, 2], "plain": "x"}
        assert task_of(fn).call(sent) == (date(2026, 1, 5), Point(1, 2), Colour.RED, (1, 2), "x", None)
        assert sent["on"] == "2026-01-05"

    def test_what_does_not_fit_any_more_is_refused(self) -> None:
        def fn(on: date) -> None: ...

        with pytest.raises(BadParameters) as caught:
            task_of(fn).bind({"on": "never"})
        assert caught.value.problems[0].pointer == "/on"

    def test_kwargs_are_kept(self) -> None:
        def fn(on: date, **rest: Any) -> Any:
            return on, rest

        assert task_of(fn).call({"on": "2026-01-05", "more": [1]}) == (date(2026, 1, 5), {"more": [1]})


class TestSchema:
    def test_it_tells_names_types_and_defaults(self) -> None:
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

    def test_kwargs_leave_it_open(self) -> None:
        def fn(**rest: Any) -> None: ...

        assert task_of(fn).schema()["additionalProperties"] is True


def test_pydantic_is_not_loaded_for_tasks_without_annotations() -> None:
    code = (
        "import sys; from holdfast.domain.tasks import task\n"
        "@task('x')\n"
        "def f(a, b=1): return a\n"
        "f.check({'a': 1}); assert f.call({'a': 2}) == 2\n"
        "assert 'pydantic' not in sys.modules, 'pydantic was loaded'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
