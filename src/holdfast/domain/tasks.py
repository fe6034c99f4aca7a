"""Tasks: registered callables with their policies. Only registered tasks can run; a name is never imported."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, get_args, overload

from holdfast.domain.errors import BadInput, ConfigurationError, Problem, UnknownTask
from holdfast.domain.parameters import Parameters
from holdfast.domain.policies import Retry
from holdfast.domain.times import is_duration

if TYPE_CHECKING:
    from typing_extensions import ParamSpec as DefaultParamSpec
    from typing_extensions import TypeVar as DefaultTypeVar

    P = DefaultParamSpec("P", default=...)
    R = DefaultTypeVar("R", default=Any)
else:
    P = ParamSpec("P")
    R = TypeVar("R")

F = ParamSpec("F")
T = TypeVar("T")

Dedupe = str | timedelta | float
ExecutorName = Literal["process", "inline", "ray_job", "ray_core"]
RESOURCES = frozenset({"cpu", "gpu", "memory", "custom"})

# A view, or the results of a map, may be too large for a parameter. Parameters with these names may therefore be
# references, which are stored as JSON and opened where the task is called. Each has the key of its reference, and the
# function that opens it, by name because domain must not import jobs.
OPENERS = {
    "view": ("$view", "holdfast.jobs.views:open_view"),
    "results": ("$results", "holdfast.jobs.results:open_results"),
}
NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Task(Generic[P, R]):
    """A registered callable and its policies. Calling it calls the function directly, without a run."""

    name: str
    fn: Callable[P, R]
    queue: str = "default"
    priority: int = 0
    timeout: timedelta | None = None
    retry: Retry | None = None
    ignore_in_hash: tuple[str, ...] = ()
    dedupe: Dedupe = "off"
    executor: ExecutorName | None = None
    tags: tuple[str, ...] = ()
    resources: Mapping[str, Any] | None = None
    environment: str | None = None
    has_own_dedupe: bool = field(default=False, repr=False)
    """Whether the task itself sets `dedupe`, even to its default: then the default of the HTTP API does not apply."""
    is_async: bool = field(init=False)
    parameters: Parameters = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check(self)
        extras = {path.partition(".")[0] for path in self.ignore_in_hash}
        made = {
            "is_async": _is_async(self.fn),
            "parameters": Parameters(self.name, self.fn, extras),
            "__wrapped__": self.fn,
        }
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            made[name] = getattr(self.fn, name, None)
        for name, value in made.items():
            object.__setattr__(self, name, value)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)

    def check(self, parameters: Mapping[str, Any], text: str | None = None) -> None:
        """Raise BadParameters, with all problems, unless these parameters match the function's signature.

        `text` is their canonical text, if the caller already has it.
        """
        self.parameters.check(parameters, text, references(parameters))

    def encode(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters as JSON, converting values of annotated types such as datetimes and dataclasses."""
        return self.parameters.encode(parameters)

    def bind(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the keyword arguments to call the function with, converted to the annotated types."""
        return self.parameters.bind(parameters)

    def call(self, parameters: Mapping[str, Any]) -> Any:
        """Call the function with these parameters. An async function returns an awaitable."""
        fn: Callable[..., Any] = self.fn
        names = references(parameters)
        if not names:
            return fn(**self.parameters.bind(parameters))
        plain = {name: value for name, value in parameters.items() if name not in names}
        return fn(**self.parameters.bind(plain), **open_references(parameters, names))

    def schema(self) -> dict[str, Any]:
        """Return a JSON Schema of the parameters."""
        return self.parameters.schema()

    @property
    def place(self) -> str:
        """Where the function is defined, for error messages."""
        code = getattr(inspect.unwrap(self.fn), "__code__", None)
        where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
        return f"{_qualified_name(self.fn)}{where}"


class Registry:
    """The registered tasks, by name."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}
        self.version = 0
        """Changes whenever a task is registered."""

    def register(self, task: Task) -> None:
        """Add a task. The same function may be registered again (after a reload), a different function may not."""
        known = self._tasks.get(task.name)
        if known is not None and _origin(known.fn) != _origin(task.fn):
            raise ConfigurationError(
                f"two tasks are named {task.name!r}: {known.place} and {task.place}; rename one of them"
            )
        self._tasks[task.name] = task
        self.version += 1

    def resolve(self, task: Task | str | Callable[..., Any]) -> Task:
        """Return the task that a caller means: a task itself, or the name of one. Raise BadInput for anything else."""
        if isinstance(task, Task):
            return task
        if isinstance(task, str):
            return self._tasks.get(task) or self.get(task)
        problem = Problem("/model", "not a task")
        raise BadInput(f"{task!r} is not a task; decorate it with @task, or name a registered one", [problem])

    def get(self, name: str) -> Task:
        """Return the task with this name, or raise UnknownTask."""
        found = self._tasks.get(name)
        if found is None:
            raise UnknownTask(name, self.names())
        return found

    def find(self, name: str) -> Task | None:
        """Return the task with this name, or None."""
        return self._tasks.get(name)

    def names(self, executors: Container[str] | None = None, default: str = "") -> list[str]:
        """Return the names of all tasks, sorted; with `executors`, of those that one of these executes.

        `default` is the executor of tasks that name none.
        """
        if executors is None:
            return sorted(self._tasks)
        return sorted([name for name, task in self._tasks.items() if (task.executor or default) in executors])

    @overload
    def task(self, name: Callable[F, T], /) -> Task[F, T]: ...

    @overload
    def task(
        self,
        name: str | None = None,
        *,
        queue: str = ...,
        priority: int = ...,
        timeout: timedelta | None = ...,
        retry: Retry | None = ...,
        ignore_in_hash: Iterable[str] = ...,
        dedupe: Dedupe = ...,
        executor: ExecutorName | None = ...,
        tags: Iterable[str] = ...,
        resources: Mapping[str, Any] | None = ...,
        environment: str | None = ...,
    ) -> Callable[[Callable[F, T]], Task[F, T]]: ...

    def task(self, name: Any = None, **policies: Any) -> Any:
        """Register a function as a task: `@task`, or `@task("name", queue=..., retry=Retry(...), ...)`.

        The name defaults to `module.function`. The decorated function can still be called directly.

        - `queue`, `priority` (-100 ... 100, higher first), `tags`: the defaults of its runs
        - `timeout`: how long an attempt may take
        - `retry`: see Retry
        - `ignore_in_hash`: dotted paths of parameters that do not count when payloads are compared; callers may send
          these even if the function does not take them
        - `dedupe`: `"off"`, `"active"`, or a window in seconds or as a timedelta. By default, runs submitted over HTTP
          are deduplicated and others are not
        - `executor`: `"process"`, `"inline"` for very short tasks, `"ray_core"` or `"ray_job"`; by default, the
          worker's executor
        - `resources`: what an attempt needs, for executors that schedule by resources: `cpu`, `gpu`, `memory` (bytes,
          or a text such as `"4GiB"`) and `custom`
        - `environment`: the name of an environment in the settings, for executors on Ray
        """
        if callable(name):
            return self._create(name, None, policies)

        def decorate(fn: Callable[..., Any]) -> Task:
            return self._create(fn, name, policies)

        return decorate

    def _create(self, fn: Callable[..., Any], name: str | None, policies: dict[str, Any]) -> Task:
        for many in ("ignore_in_hash", "tags"):
            given = policies.get(many, ())
            if isinstance(given, str) or not isinstance(given, Iterable):
                raise ConfigurationError(f"@task({many}={given!r}) must be a sequence, such as ({given!r},)")
            policies[many] = tuple(given)
        own = "dedupe" in policies
        made = Task(_default_name(fn) if name is None else name, fn, **policies, has_own_dedupe=own)
        self.register(made)
        return made


registry = Registry()
task = registry.task


def load_modules(names: Iterable[str]) -> None:
    """Import the modules that register tasks: names from the settings, never from a request.

    Raises ConfigurationError if a module cannot be imported, or contains a task with unresolvable annotations.
    """
    for name in names:
        if not _is_module_name(name):
            raise ConfigurationError(
                f"{name!r} is not a module name; HOLDFAST_TASKS takes dotted names, such as my_project.tasks"
            )
        try:
            importlib.import_module(name)
        except Exception as error:
            raise ConfigurationError(
                f"the tasks of module {name!r} cannot be loaded: {type(error).__name__}: {error}"
            ) from error
    for name in registry.names():
        registry.get(name).parameters.resolve()


def _is_async(fn: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)


def _qualified_name(fn: Callable[..., Any]) -> str:
    module, name = getattr(fn, "__module__", None), getattr(fn, "__qualname__", None)
    if not module or not name:
        raise ConfigurationError(f"{fn!r} has no name; give it one: @task('name')")
    return f"{module}.{name}"


def _default_name(fn: Callable[..., Any]) -> str:
    """Return `module.function`. Raise for a script: its module is `__main__` here and has another name in a worker."""
    name = _qualified_name(fn)
    if name.startswith("__main__."):
        short = name.removeprefix("__main__.")
        raise ConfigurationError(
            f"task {short} is defined in the script that was started, so its module is __main__ here but not in a "
            f'worker; give the task an explicit name: @task("{short}")'
        )
    return name


def _origin(fn: Callable[..., Any]) -> tuple[Any, ...]:
    """Return its position in the source: a reload creates a new function, and a script may be imported as a module."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    if code is None:
        return (id(fn),)
    name = getattr(fn, "__qualname__", "")
    return (code.co_filename, name, code.co_firstlineno if "<locals>" in name else None)


def _check(task: Task) -> None:
    for wrong, what in _mistakes(task):
        if wrong:
            raise ConfigurationError(f"task {task.name!r}: {what}")


def _mistakes(task: Task) -> Iterable[tuple[bool, str]]:
    name: Any = task.name
    timeout: Any = task.timeout
    yield not is_short_text(name), "the name must be 1 to 255 printable characters"
    yield not callable(task.fn), f"{task.fn!r} is not callable"
    yield inspect.isclass(task.fn), "a class cannot be a task; decorate a function"
    generator = inspect.isgeneratorfunction(task.fn) or inspect.isasyncgenfunction(task.fn)
    yield generator, "the function yields; return a value instead, and report progress with current_run().progress()"
    yield not is_short_text(task.queue), f"queue={task.queue!r} must be 1 to 255 printable characters"
    yield not is_priority(task.priority), f"priority={task.priority!r} must be a whole number from -100 to 100"
    bounded = timeout is None or (isinstance(timeout, timedelta) and is_duration(timeout))
    yield not bounded, f"timeout={timeout!r} must be a positive timedelta of at most 30 years"
    yield not isinstance(task.retry, Retry | None), f"retry={task.retry!r} must be a Retry(...)"
    yield not is_dedupe(task.dedupe), f'dedupe={task.dedupe!r} must be "off", "active", or a positive window'
    known = ", ".join(f'"{name}"' for name in get_args(ExecutorName))
    yield task.executor not in (None, *get_args(ExecutorName)), f"executor={task.executor!r} must be one of {known}"
    yield (
        not all(map(is_short_text, task.ignore_in_hash)),
        "ignore_in_hash must contain dotted paths, such as client.name",
    )
    yield not all(map(is_short_text, task.tags)), "tags must be strings of 1 to 255 printable characters"
    yield not isinstance(task.resources, Mapping | None), "resources must be a mapping, such as {'cpu': 2}"
    unknown = sorted(set(task.resources or ()) - RESOURCES)
    yield bool(unknown), f"unknown resources: {', '.join(map(str, unknown))}; known: {', '.join(sorted(RESOURCES))}"
    yield (
        not (task.environment is None or is_short_text(task.environment)),
        "environment must be the name of an environment",
    )


def _is_module_name(value: Any) -> bool:
    named = isinstance(value, str) and all(part.isidentifier() for part in value.split("."))
    return named and not value.endswith(".py")


def is_priority(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -100 <= value <= 100


def is_short_text(value: Any) -> bool:
    """Whether this can be the name of a queue, a tag or a key: 1 to 255 printable characters."""
    return isinstance(value, str) and 1 <= len(value) <= 255 and value.isprintable()


def is_key(value: Any, most: int = 255) -> bool:
    """Whether this can be an idempotency key: at most this many visible ASCII characters."""
    return isinstance(value, str) and 1 <= len(value) <= most and all("!" <= c <= "~" for c in value)


def is_dedupe(value: Any) -> bool:
    """Whether this says which equal runs are created once: "off", "active", or a window."""
    return is_duration(value) or value in ("off", "active")


def references(parameters: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the parameters that are references."""
    if "view" not in parameters and "results" not in parameters:
        return NONE
    given = {name: parameters.get(name) for name in OPENERS}
    return frozenset(name for name, one in given.items() if isinstance(one, dict) and [*one] == [OPENERS[name][0]])


def open_references(parameters: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    found = {}
    for name in names:
        key, opener = OPENERS[name]
        module, _, function = opener.partition(":")
        found[name] = getattr(importlib.import_module(module), function)(parameters[name][key])
    return found
