"""Canonical JSON (RFC 8785): one text and one hash for every JSON value, and a clear error for everything else.

Equal values have the same text: keys are sorted by UTF-16 units, there is no white space, and
a number is written as ECMAScript writes a double. There is one extension: 64-bit integers (-2^63 ... 2^64-1) are exact,
and a whole double in that range is that integer, so 9007199254740993 and ...992 are different values.

Beyond that range only doubles exist. ECMAScript writes those below 1e21 without an exponent, so an integer beyond
the range is accepted if it has exactly the digits of a double, and is rejected as too large otherwise: canonical
text can always be parsed and written again unchanged.

dict, list, tuple, str, int, float, bool, None and their subclasses (an enum that is a str or an int, numpy's float64,
an OrderedDict) are accepted, and treated as the plain values they represent. All other types are rejected.

orjson writes the text. Its output differs for non-finite, whole, huge or tiny floats, NUL, keys beyond U+FFFF and
types that it converts by itself; a fast check detects these, and a slower, exact path handles them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice, zip_longest
from typing import Any

import orjson

from holdfast.domain.errors import NotCanonical, Problem

MAX_DEPTH = 64
MAX_PROBLEMS = 20
INTEGERS = (-(2**63), 2**64 - 1)

_LEAVES = frozenset({str, int, bool, type(None)})
_TREES = frozenset({dict, list, tuple})
_ABSENT = object()
_ASTRAL_LEADS = b"\xf0\xf1\xf2\xf3\xf4"


def canonicalize(parameters: Any, ignore: Sequence[str] = ()) -> tuple[str, str]:
    """Return the canonical text of a JSON value, and the SHA-256 (hex) of that text without the ignored fields.

    `ignore` contains dotted paths: `"client.name"` leaves out the member `name` of the object under `client`.
    Paths that do not exist have no effect. Raises NotCanonical with a JSON Pointer for each problem.
    """
    text, tree, option = _encode(parameters)
    kept = without(tree, ignore) if ignore else tree
    hashed = text if kept is tree else orjson.dumps(kept, option=option)
    return text.decode(), sha256(hashed).hexdigest()


def canonical_text(value: Any) -> str:
    """Return the canonical text of a JSON value, without its hash. Raises NotCanonical like `canonicalize`."""
    return _encode(value)[0].decode()


def check(value: Any, max_depth: int = MAX_DEPTH) -> None:
    """Raise NotCanonical unless `value` can be stored and hashed."""
    _Exact(max_depth).build(value)


def without(tree: Any, paths: Iterable[str]) -> Any:
    """Return the tree without the members at these dotted paths; the same object if there are none."""
    for path in paths:
        tree = _without(tree, path.split("."))
    return tree


def _without(tree: Any, names: list[str]) -> Any:
    name, rest = names[0], names[1:]
    if not isinstance(tree, dict) or name not in tree:
        return tree
    if not rest:
        return {key: value for key, value in tree.items() if key != name}
    below = _without(tree[name], rest)
    return tree if below is tree[name] else {**tree, name: below}


def _encode(value: Any) -> tuple[bytes, Any, int]:
    try:
        tree = value if is_plain(value, MAX_DEPTH) else _with_exact_numbers(value, MAX_DEPTH)
        text = orjson.dumps(tree, option=orjson.OPT_SORT_KEYS)
    except (TypeError, ValueError):
        pass
    else:
        if not _odd_characters(text):
            return text, tree, orjson.OPT_SORT_KEYS
    tree = _Exact(MAX_DEPTH).build(value)
    return orjson.dumps(tree), tree, 0


def is_plain_in_python(value: Any, room: int) -> bool:
    """Whether orjson writes everything in this tree, apart from the order of keys, as RFC 8785 requires."""
    kind = type(value)
    if kind not in _TREES:
        return kind in _LEAVES
    if not room:
        return False
    for item in value.values() if kind is dict else value:
        kind = type(item)
        if kind is float:
            # Both signs are compared explicitly: calling abs() for each number would double the time.
            if not ((1e-5 <= item < 1e16 or -1e16 < item <= -1e-5) and item % 1):
                return False
        elif kind not in _LEAVES and not is_plain_in_python(item, room - 1):
            return False
    return True


is_plain: Callable[[Any, int], bool]
try:
    from holdfast.domain import _plain  # the same rules in C
except ImportError:  # this package was built without a compiler
    is_plain = is_plain_in_python
else:
    is_plain = _plain.is_plain


def _with_exact_numbers(value: Any, room: int) -> Any:
    """Return a copy with the floats replaced that orjson would format differently; raise TypeError for other types."""
    kind = type(value)
    if kind in _LEAVES:
        return value
    if kind is float:
        return _number(value)
    if not room or kind not in _TREES:
        raise TypeError
    room -= 1
    if kind is dict:
        return {key: item if type(item) in _LEAVES else _with_exact_numbers(item, room) for key, item in value.items()}
    return [item if type(item) in _LEAVES else _with_exact_numbers(item, room) for item in value]


def _number(value: float) -> float | orjson.Fragment:
    """Return a value that orjson writes as the canonical text of a double; raise ValueError if it is not finite."""
    if value % 1 and 1e-5 <= abs(value) < 1e16:
        return value
    if value.is_integer() and INTEGERS[0] <= value <= INTEGERS[1]:
        return int(value)
    if not math.isfinite(value):
        raise ValueError
    return orjson.Fragment(number_text(value))


def _odd_characters(text: bytes) -> bool:
    """Whether there may be a NUL, or a key that UTF-16 sorts differently from UTF-8."""
    if b"\\" in text and b"\\u0000" in text:
        return True
    return not text.isascii() and any(lead in text for lead in _ASTRAL_LEADS)


@dataclass(frozen=True, slots=True)
class Refused:
    """Marks a position in a parsed tree where the text contained something that is refused."""

    detail: str


class _Exact:
    """Rebuilds a tree so that orjson, without sorting, writes its canonical text; collects problems."""

    def __init__(self, max_depth: int) -> None:
        self.max_depth = max_depth
        self.path: list[str | int] = []
        self.parents: list[int] = []
        self.problems: list[Problem] = []

    def build(self, value: Any) -> Any:
        tree = self.value(value)
        if self.problems:
            raise refusal(self.problems)
        return tree

    def value(self, value: Any) -> Any:
        kind = type(value)
        if kind is str and value.isascii() and "\0" not in value:
            return value
        if kind is bool or value is None:
            return value
        if isinstance(value, str):
            return self.string(value)
        if isinstance(value, int):
            return self.integer(int.__index__(value))
        if isinstance(value, float):
            return self.double(float.__float__(value))
        if isinstance(value, (dict, list, tuple)):
            return self.container(value)
        if isinstance(value, Refused):
            return self.refuse(value.detail)
        return self.refuse(f"a {kind.__name__} is not a JSON value; convert it to a string, number, list or object")

    def string(self, value: str) -> Any:
        plain = str.__str__(value)
        if _has_surrogate(plain):
            return self.refuse("the string contains half of a surrogate pair, which is not a character; remove it")
        if "\0" in plain:
            return self.refuse("the string contains a NUL character, which cannot be stored; remove it")
        return plain

    def integer(self, value: int) -> Any:
        if INTEGERS[0] <= value <= INTEGERS[1]:
            return value
        if written_as_double(value):
            return orjson.Fragment(number_text(float(value)))
        return self.refuse("the integer is outside the range -2^63 to 2^64-1; send it as a string")

    def double(self, value: float) -> Any:
        try:
            return _number(value)
        except ValueError:
            return self.refuse("NaN and infinities are not JSON; send null or leave the field out")

    def container(self, value: Any) -> Any:
        if id(value) in self.parents:
            return self.refuse("the value contains itself")
        if len(self.parents) >= self.max_depth:
            return self.refuse(f"nested more than {self.max_depth} levels deep; reduce the nesting")
        self.parents.append(id(value))
        tree = self.object(value) if isinstance(value, dict) else self.array(value)
        self.parents.pop()
        return tree

    def array(self, value: Any) -> list[Any]:
        items = []
        for index, item in enumerate(value):
            self.path.append(index)
            items.append(self.value(item))
            self.path.pop()
        return items

    def object(self, value: dict[Any, Any]) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for key, item in dict.items(value):
            name = self.key(key)
            if name is None:
                continue
            self.path.append(name)
            if name in members:
                self.refuse("the key occurs twice; remove one of them")
            members[name] = self.value(item)
            self.path.pop()
        order = sorted(members, key=None if all(map(str.isascii, members)) else _utf16)
        return {name: members[name] for name in order}

    def key(self, key: Any) -> str | None:
        """Return the key as a plain str; an invalid key is reported at its object, since no pointer can contain it."""
        if type(key) is str and key.isascii() and "\0" not in key:
            return key
        if not isinstance(key, str):
            self.refuse(f"a key of this object is of type {type(key).__name__}; write it as a string")
            return None
        plain = str.__str__(key)
        if "\0" in plain or _has_surrogate(plain):
            self.refuse(f"the key {plain!a:.60} contains NUL or half of a surrogate pair; rename it")
            return None
        return plain

    def refuse(self, detail: str) -> None:
        self.problems.append(Problem(pointer(self.path), detail))
        if len(self.problems) >= MAX_PROBLEMS:
            raise refusal(self.problems)


def differences(a: Any, b: Any, limit: int = MAX_PROBLEMS) -> list[str]:
    """Return the JSON Pointers at which two JSON values differ, at most `limit` of them."""
    return list(islice(_differences(a, b, ()), limit))


def _differences(a: Any, b: Any, path: tuple[str | int, ...]) -> Iterator[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(a.keys() | b.keys()):
            yield from _differences(a.get(key, _ABSENT), b.get(key, _ABSENT), (*path, key))
    elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        for index, (x, y) in enumerate(zip_longest(a, b, fillvalue=_ABSENT)):
            yield from _differences(x, y, (*path, index))
    elif not _same(a, b):
        yield pointer(path)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    return bool(_as_read_back(a) == _as_read_back(b))


def _as_read_back(value: Any) -> Any:
    """Return a double for an integer that represents one, because its exact digits may differ."""
    beyond = isinstance(value, int) and not INTEGERS[0] <= value <= INTEGERS[1]
    return float(value) if beyond and written_as_double(value) else value


def refusal(problems: Sequence[Problem]) -> NotCanonical:
    first = problems[0]
    where = f"at {first.pointer}: " if first.pointer else ""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return NotCanonical(f"this JSON value cannot be stored: {where}{first.detail}{more}", problems)


def pointer(path: Iterable[str | int]) -> str:
    """Write a path as a JSON Pointer (RFC 6901)."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def written_as_double(value: int) -> bool:
    """Whether an integer beyond 64 bits has exactly the digits of a double."""
    return value.bit_length() <= 70 and number_text(float(value)) == str(value)


def number_text(value: float) -> str:
    """Write a finite double as ECMAScript does: Python produces the same digits, but formats them differently."""
    digits, _, exponent = repr(value).partition("e")
    if not exponent:
        return digits.removesuffix(".0") if value else "0"
    sign = "-" if value < 0 else ""
    digits = digits.lstrip("-").replace(".", "")
    point = int(exponent) + 1
    if len(digits) <= point <= 21:
        return sign + digits.ljust(point, "0")
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{point - 1:+d}"


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be")


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
