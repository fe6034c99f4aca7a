"""Tasks: the decorator, the registry, and modules that register them."""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain import tasks
from holdfast.domain.errors import ConfigurationError, UnknownTask
from holdfast.domain.policies import Retry
from holdfast.domain.tasks import Registry, load_modules
from holdfast.domain.tasks import registry as global_registry


@pytest.fixture
def registry() -> Registry:
    return Registry()


def greet(name: str, times: int = 1) -> str:
    """Say hello."""
    return " ".join([f"hello {name}"] * times)


class TestDecorator:
    def test_bare_decorator_uses_the_name_of_the_function(self, registry: Registry) -> None:
        made = registry.task(greet)
        assert made.name == f"{__name__}.greet"
        assert registry.get(made.name) is made

    def test_task_has_the_given_name_and_policies(self, registry: Registry) -> None:
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

    def test_task_without_options_has_the_defaults(self, registry: Registry) -> None:
        made = registry.task()(greet)
        assert (made.queue, made.priority, made.timeout, made.retry) == ("default", 0, None, None)
        assert (made.ignore_in_hash, made.dedupe, made.executor, made.tags) == ((), "off", None, ())
        assert not made.is_async

    def test_task_can_be_called_like_the_function(self, registry: Registry) -> None:
        made = registry.task(greet)
        assert made("you", times=2) == "hello you hello you"
        assert (made.__name__, made.__doc__, made.__module__) == ("greet", "Say hello.", __name__)
        assert inspect.signature(made) == inspect.signature(greet)
        assert made.fn is greet

    def test_async_function_is_detected(self, registry: Registry) -> None:
        @registry.task
        async def double(x: int) -> int:
            return 2 * x

        assert double.is_async
        assert asyncio.run(double(2)) == 4
        assert asyncio.run(double.call({"x": 3})) == 6

    def test_global_decorator_registers_globally(self) -> None:
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
    def test_invalid_policies_are_rejected(self, registry: Registry, policies: dict[str, Any], says: str) -> None:
        with pytest.raises(ConfigurationError, match=says):
            registry.task(**policies)(greet)
        assert registry.names() == []

    def test_invalid_functions_are_rejected(self, registry: Registry) -> None:
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
    def test_unknown_task_suggests_a_close_name(self, registry: Registry) -> None:
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

    def test_two_local_functions_with_the_same_name_differ(self, registry: Registry) -> None:
        @registry.task("same")
        def local() -> None: ...

        with pytest.raises(ConfigurationError, match="two tasks"):

            @registry.task("same")
            def local() -> None: ...

    def test_same_function_may_be_registered_again(self, registry: Registry) -> None:
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

    def test_missing_module_is_rejected(self) -> None:
        with pytest.raises(ConfigurationError, match=r"'hf_absent'.*ModuleNotFoundError"):
            load_modules(["hf_absent"])

    def test_module_that_fails_to_import_is_rejected(self, modules: Path) -> None:
        (modules / "hf_broken.py").write_text("1 / 0\n")
        with pytest.raises(ConfigurationError, match=r"'hf_broken'.*ZeroDivisionError: division by zero"):
            load_modules(["hf_broken"])

    @pytest.mark.parametrize("name", ["tasks.py", "a/b", "", "a..b", ".relative", "a b"])
    def test_invalid_module_name_is_rejected(self, name: str) -> None:
        with pytest.raises(ConfigurationError, match=r"dotted names"):
            load_modules([name])

    def test_unresolvable_annotation_is_rejected_when_modules_are_loaded(self, modules: Path) -> None:
        (modules / "hf_vague.py").write_text(
            "from holdfast.domain.tasks import task\n@task('hf.vague')\ndef vague(x: 'Nowhere'): ...\n"
        )
        with pytest.raises(ConfigurationError, match=r"hf\.vague.*Nowhere"):
            load_modules(["hf_vague"])


def test_pydantic_is_not_loaded_for_tasks_without_annotations() -> None:
    code = (
        "import sys; from holdfast.domain.tasks import task\n"
        "@task('x')\n"
        "def f(a, b=1): return a\n"
        "f.check({'a': 1}); assert f.call({'a': 2}) == 2\n"
        "assert 'pydantic' not in sys.modules, 'pydantic was loaded'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
