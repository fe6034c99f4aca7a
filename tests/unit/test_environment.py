"""The environment that a worker records for the provenance of its results."""

from __future__ import annotations

import platform
from importlib.metadata import version

import holdfast.tasks  # noqa: F401 - the modules whose versions are compared
from holdfast.processes.environment import describe_environment


def test_environment_has_versions_of_python_platform_and_packages() -> None:
    found = describe_environment(["holdfast.tasks.mock"])
    assert found["python_version"] == platform.python_version()
    assert found["platform"] == platform.platform()
    assert found["packages"]["orjson"] == version("orjson")


def test_code_version_depends_only_on_the_sources_of_the_task_modules() -> None:
    mock = describe_environment(["holdfast.tasks.mock"])["code_version"]
    both = describe_environment(["holdfast.tasks.mock", "holdfast.tasks.forecast"])["code_version"]
    again = describe_environment(["holdfast.tasks.forecast", "holdfast.tasks.mock", "holdfast.tasks.mock"])
    assert mock.startswith("sha256:")
    assert mock != both == again["code_version"]


def test_code_version_of_a_module_without_a_source_file_is_unknown() -> None:
    assert describe_environment(["builtins"])["code_version"] is None
