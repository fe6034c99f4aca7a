"""The checks in C and in Python lead to the same text, hash and errors.

    python -m tests.unit.test_canonical_native 1000000

compares that many generated values.
"""

from __future__ import annotations

import enum
import importlib.util
import random
import shutil
import sys
import uuid
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pytest
from hatch_build import MODULE, compile_module

from holdfast.domain import canonical
from holdfast.domain.errors import NotCanonical

ROOT = Path(__file__).resolve().parents[2]


class Color(enum.Enum):
    RED = "red"


class Size(enum.StrEnum):
    BIG = "big"


class Level(enum.IntEnum):
    HIGH = 3


class Half(float):
    pass


ODD = [
    *(Color.RED, Size.BIG, Level.HIGH, Half(0.5), uuid.UUID(int=7), orjson.Fragment(b"1"), b"bytes", {1}, object()),
    *(OrderedDict(a=1), {1: 2}, 2**63, -(2**63), 2**64, 10**21, "\0", "\ud800", {"\ufb33": 1, "\U0001f600": 2}),
    *(float("nan"), float("inf"), 0.0, -0.0, 1e16, 1e21, 1e22, 5e-324, 1e-5, 9.999999999999999e-6, 9999999999999998.0),
]
LETTERS = 'abcxyz "\\/\u00e9\u2028\ufb33\U0001f600'


def generated(dice: random.Random, depth: int = 0) -> Any:
    """Return a typical value, with an unusual part now and then."""
    kind = dice.random()
    if kind < 0.02:
        return dice.choice(ODD)
    if kind < 0.25:
        return "".join(dice.choices(LETTERS, k=dice.randrange(8)))
    if kind < 0.40:
        return dice.randrange(-(2 ** dice.randrange(1, 65)), 2 ** dice.randrange(1, 65))
    if kind < 0.65:
        return dice.choice((round(dice.uniform(-9, 9), 6), dice.uniform(-1, 1) * 10.0 ** dice.randrange(-30, 30)))
    if kind < 0.75 or depth > 5:
        return dice.choice((None, True, False))
    items = [generated(dice, depth + 1) for _ in range(dice.randrange(5))]
    if kind < 0.85:
        return {"".join(dice.choices(LETTERS, k=3)): item for item in items}
    return tuple(items) if kind < 0.88 else items


def nested(depth: int) -> Any:
    value: Any = 1.5
    for _ in range(depth):
        value = [value]
    return value


def outcome(value: Any, look: Callable[[Any, int], bool]) -> Any:
    """Return the text and hash of a value according to this check, or its problems."""
    before, canonical.is_plain = canonical.is_plain, look
    try:
        return canonical.canonicalize(value)
    except NotCanonical as error:
        return error.problems
    finally:
        canonical.is_plain = before


def compare(native: ModuleType, amount: int, seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(amount):
        value = generated(dice)
        assert outcome(value, native.is_plain) == outcome(value, canonical.is_plain_in_python), value


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("_plain", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("there is no C compiler here, so nothing to compare with")
    target = tmp_path_factory.mktemp("native") / MODULE.name
    assert compile_module(ROOT, target) is None
    return load(target)


def test_native_and_python_agree_on_generated_values(native: ModuleType) -> None:
    compare(native, 5_000, seed=1)


@pytest.mark.parametrize(
    "value", [*ODD, *(nested(depth) for depth in (63, 64, 65, 3000))], ids=lambda v: type(v).__name__
)
def test_native_and_python_agree_on_odd_values(native: ModuleType, value: Any) -> None:
    for inside in (value, [value], {"a": value}, (value, 1)):
        assert outcome(inside, native.is_plain) == outcome(inside, canonical.is_plain_in_python)


def test_a_missing_compiler_is_reported_and_not_fatal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    assert compile_module(ROOT, tmp_path / MODULE.name)
    assert not (tmp_path / MODULE.name).exists()


if __name__ == "__main__":
    compare(load(ROOT / MODULE), int(sys.argv[1]), seed=int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    sys.stdout.write(f"{sys.argv[1]} values: the same text, hash or refusal\n")
