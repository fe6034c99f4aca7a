"""The files for containers. No engine runs here, so their syntax is checked, and every command they contain."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from holdfast.runtime.settings import Settings, load

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
SERVICES = ("postgres", "redis", "init", "api", "worker", "rq-worker")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = YAML(typ="safe").load(COMPOSE.read_text())["services"]
    return found


def variables(text: str) -> set[str]:
    """The environment variables that compose substitutes; `$$` is an escaped dollar sign."""
    return set(re.findall(r"(?<!\$)\$\{([A-Z_]+)", text))


def test_compose_file_is_valid() -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    result = subprocess.run(check, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_compose_file_has_all_services(services: dict[str, Any]) -> None:
    assert set(services) == set(SERVICES)
    assert int(services["postgres"]["image"].partition(":")[2]) >= 15
    assert int(services["redis"]["image"].partition(":")[2]) >= 7
    for name in ("api", "worker", "rq-worker"):
        assert services[name]["depends_on"]["init"]["condition"] == "service_completed_successfully"
        assert services[name]["cap_drop"] == ["ALL"]
        assert services[name]["read_only"] is True


def test_example_environment_names_exactly_the_variables_used() -> None:
    example = (ROOT / ".env.example").read_text()
    named = set(re.findall(r"^([A-Z_]+)=", example, re.MULTILINE))
    assert named == variables(COMPOSE.read_text())
    assert re.search(r"^POSTGRES_PASSWORD=$", example, re.MULTILINE), "an example password is a password in use"


def test_every_setting_in_the_compose_file_exists(services: dict[str, Any], tmp_path: Path) -> None:
    for name in ("init", "api", "worker", "rq-worker"):
        given = {
            key: re.sub(r"\$\{[A-Z_]+(?::[-?]([^}]*))?\}", r"\1", str(value))
            for key, value in services[name]["environment"].items()
        }
        settings = load(given, tmp_path)
        assert isinstance(settings, Settings)
        assert settings.database_url is not None
        assert settings.doorbell == "rq"


@pytest.mark.parametrize("service", ["worker", "api"])
def test_command_of_the_service_exists(service: str, services: dict[str, Any]) -> None:
    (command,) = services[service]["command"]
    result = subprocess.run([sys.executable, "-m", "holdfast", command, "--help"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_options_of_the_rq_worker_exist(services: dict[str, Any]) -> None:
    (command,) = services["rq-worker"]["command"]
    line = command.removeprefix("exec rq ").replace("$$RQ_QUEUES", "default").split()
    result = subprocess.run([sys.executable, "-m", "rq.cli", *line, "--help"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "--job-class holdfast.rq.RunJob" in command


def test_image_does_not_run_as_root() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("USER")] == ["USER 10001:10001"]
    assert all(":latest" not in line for line in lines if line.startswith("FROM"))


def test_files_that_the_dockerfile_copies_are_in_the_build_context() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied: set[str] = set()
    for line in (ROOT / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            copied |= set(line.split()[1:-1])
    assert copied == kept
    assert all((ROOT / path).exists() for path in kept)
