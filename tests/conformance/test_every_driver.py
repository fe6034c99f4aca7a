"""The tests that run on every driver use all operations and statements that the whole suite uses."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast import sql
from tests import timeline
from tests.conformance.drivers import ONLY_BORROWED

MODULES = sorted(Path(__file__).parent.glob("test_*.py"))
MARK = "pytest.mark.every_driver"
# Modules of operations and of statements.
HOLDERS = {"ops", *(file.stem for file in Path(sql.__path__[0]).glob("*.py"))}

Functions = Mapping[str, ast.FunctionDef]


def _functions(nodes: list[ast.stmt]) -> Functions:
    return {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}


def _methods() -> Functions:
    """The methods of timelines and their workers."""
    classes = [node for node in ast.parse(Path(timeline.__file__).read_text()).body if isinstance(node, ast.ClassDef)]
    return {name: one for node in classes for name, one in _functions(node.body).items()}


def _used(function: ast.FunctionDef, helpers: Functions, methods: Functions) -> set[str]:
    """The operations and statements that a function names, itself or through helpers and timelines."""
    found: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id in HOLDERS:
                found.add(f"{node.value.id}.{node.attr}")
            elif node.attr in methods:
                rest = {name: one for name, one in methods.items() if name != node.attr}
                found |= _used(methods[node.attr], helpers, rest)
        elif isinstance(node, ast.Name) and node.id in helpers:
            rest = {name: one for name, one in helpers.items() if name != node.id}
            found |= _used(helpers[node.id], rest, methods)
    return found


def _of(modules: list[Path], *, marked: bool) -> set[str]:
    found: set[str] = set()
    methods = _methods()
    for module in modules:
        functions = _functions(ast.parse(module.read_text()).body)
        helpers = {name: one for name, one in functions.items() if not name.startswith("test_")}
        for name, function in functions.items():
            on_driver = {"timeline", "driver"} & {argument.arg for argument in function.args.args}
            chosen = not marked or MARK in map(ast.unparse, function.decorator_list)
            if name.startswith("test_") and on_driver and chosen:
                found |= _used(function, helpers, methods)
    return found


def test_every_operation_of_the_suite_runs_on_every_driver() -> None:
    everything = _of(MODULES, marked=False)
    assert {"ops.submit", "ops.claim", "ops.finish", "workers.drain", "queues.pause"} <= everything
    assert everything - _of(MODULES, marked=True) == set()


@pytest.mark.parametrize("borrowed", ONLY_BORROWED)
def test_every_operation_in_a_callers_transaction_runs_on_every_driver_that_supports_it(borrowed: str) -> None:
    modules = [module for module in MODULES if module.stem in ONLY_BORROWED[borrowed]]
    assert _of(modules, marked=False) - _of(modules, marked=True) == set()
