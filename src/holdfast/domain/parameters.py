"""A task's parameters according to its signature: checked before anything is stored, converted before the call.

Names come from the signature, types from the annotations, which pydantic checks strictly as JSON (a date is a string,
and 1 is not accepted as true). Pydantic is imported only when the first annotated task is used.
"""

from __future__ import annotations

import collections.abc
import difflib
import functools
import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NoReturn

import orjson

from holdfast.domain import encoding
from holdfast.domain.canonical import canonical_text, pointer
from holdfast.domain.errors import BadParameters, ConfigurationError, NotCanonical, Problem


class Within:
    """A number from `least` to `most`. Pydantic expands it to `Ge` and `Le` of annotated_types.

    annotated_types is imported only at that point. Workers and Ray jobs load the shipped tasks whenever they start, and
    importing it would take a sixth of the time that importing Holdfast takes.
    """

    __slots__ = ("least", "most")
    __is_annotated_types_grouped_metadata__ = True

    def __init__(self, least: float, most: float | None = None) -> None:
        self.least = least
        self.most = most

    def __repr__(self) -> str:
        return f"Within({self.least}, {self.most})"

    def __iter__(self) -> Iterator[Any]:
        from annotated_types import Ge, Le

        yield Ge(self.least)
        if self.most is not None:
            yield Le(self.most)


_PLAIN = (str, int, float, bool, None, type(None), dict, list, Any, object)
_PLAIN_OF = (dict, list, collections.abc.Mapping, collections.abc.Sequence, typing.Union, types.UnionType)

_OBJECTS = (dict, collections.abc.Mapping)
_TEXT_KEYS = (str, Any, object)


class Parameters:
    """The named parameters of a function, and how to convert JSON to them.

    `extras` are names that callers may send although the function does not accept them: they are stored with the run
    and left out of the call.
    """

    def __init__(self, name: str, fn: Callable[..., Any], extras: Iterable[str] = ()) -> None:
        self.name = name
        self.fn = fn
        self.open = False
        self._adapters: dict[str, Any] = {}
        self.taken: dict[str, inspect.Parameter] = {}
        for parameter in _signature(name, fn).parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                self.open = True
            elif parameter.kind is parameter.POSITIONAL_ONLY:
                raise ConfigurationError(
                    f"task {name!r}: parameter {parameter.name!r} is positional-only, but a run passes its parameters "
                    "by name; remove the / from the signature"
                )
            elif parameter.kind is not parameter.VAR_POSITIONAL:
                self.taken[parameter.name] = parameter
        self.required = [key for key, parameter in self.taken.items() if parameter.default is parameter.empty]
        self.extras = frozenset() if self.open else frozenset(extras) - self.taken.keys()

    def resolve(self) -> None:
        """Raise ConfigurationError now, rather than at the first run, if an annotation is invalid."""
        _ = self.plain

    @functools.cached_property
    def hints(self) -> dict[str, Any]:
        """The resolved annotations of the parameters."""
        annotated = {key: p.annotation for key, p in self.taken.items() if p.annotation is not p.empty}
        if not annotated:
            return {}
        # The return annotation is left out: it is not needed, and may name something that only a type checker imports.
        parameters = types.SimpleNamespace(__annotations__=annotated)
        try:
            hints = typing.get_type_hints(parameters, globalns=_globals(self.fn), include_extras=True)
        except (NameError, TypeError, AttributeError, SyntaxError) as error:
            raise ConfigurationError(
                f"task {self.name!r}: an annotation of its parameters cannot be resolved ({error}); import the name "
                "where the task is defined, outside of TYPE_CHECKING"
            ) from error
        optional = {key for key in hints if self.taken[key].default is None}
        return {key: typing.Optional[hint] if key in optional else hint for key, hint in hints.items()}  # noqa: UP045

    @functools.cached_property
    def plain(self) -> bool:
        """True if JSON values are passed to the function unchanged."""
        return all(_is_plain(hint) for hint in self.hints.values())

    @functools.cached_property
    def adapter(self) -> Any:
        """The pydantic type of an object with the annotated parameters, all of them optional."""
        from pydantic import PydanticUserError, TypeAdapter
        from typing_extensions import TypedDict

        make: Any = TypedDict
        try:
            return TypeAdapter(make("Parameters", self.hints, total=False))
        except PydanticUserError as error:
            reason = str(error).splitlines()[0]
            raise ConfigurationError(
                f"task {self.name!r}: a parameter's type cannot be read from JSON ({reason}); annotate it with a JSON "
                "type, a dataclass or a pydantic model"
            ) from error

    @functools.cached_property
    def fit(self) -> Callable[[str], object]:
        """A fast check, made once from the signature: it raises ValueError unless it accepts this canonical text.

        What it rejects is left to `check`, which also knows references, and describes the problems.
        """
        required, known, is_open = frozenset(self.required), self.extras | self.taken.keys(), self.open

        def check_names(text: str) -> None:
            names = orjson.loads(text).keys()
            if not (required <= names and (is_open or names <= known)):
                raise ValueError

        return self._compiled() if self.hints else check_names

    def _compiled(self) -> Callable[[str], object]:
        """The fast check by pydantic, of names and types at once."""
        from typing import NotRequired

        from pydantic import TypeAdapter
        from typing_extensions import TypedDict

        _ = self.adapter  # raises if an annotation is invalid
        hints = {key: self.hints.get(key, Any) for key in self.taken} | dict.fromkeys(self.extras, Any)
        make: Any = TypedDict
        kind = make("Parameters", {key: h if key in self.required else NotRequired[h] for key, h in hints.items()})
        if not self.open:
            # Types without a configuration of their own inherit this, so the check is stricter than `check` there.
            kind.__pydantic_config__ = {"extra": "forbid"}
        adapter = TypeAdapter(kind)
        # An alias would be accepted in place of the parameter's name.
        return _reject if _has_aliases(adapter.core_schema) else partial(adapter.validator.validate_json, strict=True)

    def check(self, given: Mapping[str, Any], text: str | None = None, references: Collection[str] = ()) -> None:
        """Raise BadParameters, with all problems, unless these are valid. `text` is their canonical text, if known.

        The types of references are not checked: they have one only when they are opened.
        """
        problems = self._wrong_names(given)
        if references:
            given, text = {name: value for name, value in given.items() if name not in references}, None
        if self.hints:
            converted = self._converted(text if text is not None else _text(given))
            problems += [] if isinstance(converted, dict) else _problems(converted, given)
        if problems:
            raise self._refusal(problems)

    def encode(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters as JSON, converting values of the annotated types.

        Raises BadParameters, with all problems, for values that do not match their annotation. Other values that cannot
        be stored are left for `canonicalize` to reject.
        """
        encoded = dict(given)
        problems: list[Problem] = []
        for key, value in given.items():
            found = encoding.foreign(value, (key,))
            if found is None:
                continue
            try:
                encoded[key] = self._encoded(key, value, *found)
            except encoding.NotEncodable as error:
                problems.append(error.problem)
        if problems:
            raise self._refusal(problems)
        return encoded

    def _encoded(self, key: str, value: Any, path: encoding.Path, part: Any) -> Any:
        hint = self.hints.get(key, inspect.Parameter.empty)
        if hint is inspect.Parameter.empty or _is_plain(hint):
            if isinstance(part, dict):  # because of its keys, which are rejected elsewhere
                return value
            raise encoding.NotEncodable(Problem(pointer(path), _unannotated(key, hint, value, part)))
        written = encoding.encode(self._adapter_of(key), key, value)
        back = self._converted(_text({key: written}))
        if isinstance(back, dict) and (changed := encoding.changed(value, back[key], (key,))):
            raise encoding.NotEncodable(_not_read_back(key, hint, *changed))
        return written

    def _adapter_of(self, key: str) -> Any:
        """The pydantic type of one parameter."""
        from pydantic import TypeAdapter

        if key not in self._adapters:
            _ = self.adapter  # raises if an annotation is invalid
            self._adapters[key] = TypeAdapter(self.hints[key])
        return self._adapters[key]

    def bind(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the keyword arguments to call the function with; the same mapping if nothing has to be changed."""
        if self.extras and not self.extras.isdisjoint(given):
            given = {key: value for key, value in given.items() if key not in self.extras}
        if self.plain:
            return given
        converted = self._converted(_text(given))
        if isinstance(converted, dict):
            return {**given, **converted}
        raise self._refusal(_problems(converted, given))

    def schema(self) -> dict[str, Any]:
        """Return a JSON Schema of the parameters."""
        made = self._type_schema()
        typed = made.pop("properties", {})
        properties: dict[str, Any] = {}
        for key, parameter in self.taken.items():
            properties[key] = {name: value for name, value in typed.get(key, {}).items() if name != "title"}
            if parameter.default is not parameter.empty and _is_json(parameter.default):
                properties[key]["default"] = parameter.default
        properties.update({key: {} for key in sorted(self.extras)})
        schema = {"type": "object", "properties": properties, "required": self.required}
        if "$defs" in made:
            schema["$defs"] = made["$defs"]
        return {**schema, "additionalProperties": self.open}

    def _type_schema(self) -> dict[str, Any]:
        if not self.hints:
            return {}
        from pydantic.errors import PydanticInvalidForJsonSchema

        try:
            made: dict[str, Any] = self.adapter.json_schema()
        except PydanticInvalidForJsonSchema:
            return {}
        return made

    def _wrong_names(self, given: Mapping[str, Any]) -> list[Problem]:
        problems = [Problem(pointer([key]), "missing") for key in self.required if key not in given]
        if self.open:
            return problems
        for key in given:
            if key not in self.taken and key not in self.extras:
                near = difflib.get_close_matches(key, self.taken, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                problems.append(Problem(pointer([key]), f"unknown parameter{hint}"))
        return problems

    def _converted(self, text: str) -> dict[str, Any] | list[Any]:
        """Return the annotated parameters as their types, or pydantic's list of errors."""
        from pydantic import ValidationError

        try:
            converted: dict[str, Any] = self.adapter.validate_json(text, strict=True)
        except ValidationError as error:
            return list(error.errors(include_url=False, include_input=False, include_context=False))
        return converted

    def _refusal(self, problems: list[Problem]) -> BadParameters:
        listed = "; ".join(f"{problem.pointer}: {problem.detail}" for problem in problems)
        return BadParameters(f"the parameters do not match task {self.name!r}: {listed}", problems)


def _reject(text: str) -> NoReturn:
    raise ValueError


def _has_aliases(schema: Any) -> bool:
    """Whether a field of the object that pydantic's schema describes may have another name."""
    while "fields" not in schema:
        schema = schema["schema"]
    return any("validation_alias" in one for one in schema["fields"].values())


def _signature(name: str, fn: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"task {name!r}: the signature of {fn!r} cannot be read ({error})") from error


def _globals(fn: Any) -> dict[str, Any]:
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = inspect.unwrap(fn)
    found: dict[str, Any] = getattr(fn, "__globals__", None) or getattr(type(fn).__call__, "__globals__", {})
    return found


def _unannotated(key: str, hint: Any, value: Any, part: Any) -> str:
    """Say why a value that is not JSON is rejected, and which annotation would allow it."""
    kind = encoding.type_name(type(part))
    suggested = encoding.suggested(value)
    if suggested is None:
        return f"a value of type {kind} cannot be written as JSON; pass a string, number, list or object instead"
    annotated = "not annotated" if hint is inspect.Parameter.empty else f"annotated with {encoding.type_name(hint)}"
    return (
        f"a value of type {kind} is not JSON, and parameter {key!r} is {annotated}; annotate it with {suggested} "
        "to receive that type in the task, or pass a string, number, list or object"
    )


def _not_read_back(key: str, hint: Any, path: encoding.Path, value: Any, back: Any) -> Problem:
    kind, became = encoding.type_name(type(value)), encoding.type_name(type(back))
    reason = f"parameter {key!r} is annotated with {encoding.type_name(hint)}, so "
    if kind == became:
        return Problem(pointer(path), f"{reason}the task would receive a different {kind}")
    if back is None:
        return Problem(pointer(path), f"{reason}the task would not receive this value; pass one of exactly that type")
    fix = f"use an annotation with {kind} at this position"
    return Problem(pointer(path), f"{reason}the task would receive {became} instead of {kind}; {fix}")


def _is_plain(hint: Any) -> bool:
    """Whether pydantic would return a JSON value of this type unchanged."""
    if hint in _PLAIN:
        return True
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _is_plain(arguments[0]) and all(map(_only_checks, arguments[1:]))
    if origin is typing.Literal:
        return all(type(one) in _PLAIN for one in arguments)
    if origin in _OBJECTS and arguments[0] not in _TEXT_KEYS:
        return False
    return origin in _PLAIN_OF and all(_is_plain(argument) for argument in arguments)


def _only_checks(annotation: object) -> bool:
    return type(annotation).__module__ == "annotated_types" or isinstance(annotation, Within)


def _problems(errors: Iterable[Mapping[str, Any]], given: Any) -> list[Problem]:
    """Convert pydantic's errors into one problem per position; a union has one error for each of its branches."""
    details: dict[str, list[str]] = {}
    for error in errors:
        detail = "missing" if error["type"] == "missing" else error["msg"]
        places = details.setdefault(pointer(_path(error, given)), [])
        if detail not in places:
            places.append(detail)
    return [Problem(place, " or: ".join(found)) for place, found in details.items()]


def _path(error: Mapping[str, Any], value: Any) -> list[str | int]:
    """Return the part of pydantic's location that is a path in the value, without union branches and validators."""
    path: list[str | int] = []
    steps = error["loc"]
    for step in steps:
        if _is_step(step, value):
            value = value[step]
        elif error["type"] != "missing" or step is not steps[-1]:
            continue
        path.append(step)
    return path


def _is_step(step: str | int, value: Any) -> bool:
    if isinstance(value, Mapping):
        return step in value
    return isinstance(value, list | tuple) and isinstance(step, int) and step < len(value)


def _text(given: Mapping[str, Any]) -> str:
    return canonical_text(given if isinstance(given, dict) else dict(given))


def _is_json(value: Any) -> bool:
    try:
        canonical_text(value)
    except NotCanonical:
        return False
    return True
