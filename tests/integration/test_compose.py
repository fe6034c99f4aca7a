"""The files for containers: no engine runs here, so their form is checked, and every command they name."""

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
    """What compose takes from the environment; `$$` is a dollar for the shell inside."""
    return set(re.findall(r"(?<!\$)\$\{([A-Z_]+)", text))


def test_the_compose_file_is_one() -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    told = subprocess.run(check, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr


def test_it_has_the_services_that_belong_together(services: dict[str, Any]) -> None:
    assert set(services) == set(SERVICES)
    assert int(services["postgres"]["image"].partition(":")[2]) >= 15
    assert int(services["redis"]["image"].partition(":")[2]) >= 7
    for name in ("api", "worker", "rq-worker"):
        assert services[name]["depends_on"]["init"]["condition"] == "service_completed_successfully"
        assert services[name]["cap_drop"] == ["ALL"]
        assert services[name]["read_only"] is True


def test_the_example_names_every_variable_and_no_other() -> None:
    example = (ROOT / ".env.example").read_text()
    named = set(re.findall(r"^([A-Z_]+)=", example, re.MULTILINE))
    assert named == variables(COMPOSE.read_text())
    assert re.search(r"^POSTGRES_PASSWORD=$", example, re.MULTILINE), "an example password is a password in use"


def test_every_setting_in_it_is_one(services: dict[str, Any], tmp_path: Path) -> None:
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
def test_holdfast_has_the_command_of(service: str, services: dict[str, Any]) -> None:
    (command,) = services[service]["command"]
    told = subprocess.run([sys.executable, "-m", "holdfast", command, "--help"], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr


def test_rq_has_the_options_of_the_rq_worker(services: dict[str, Any]) -> None:
    (command,) = services["rq-worker"]["command"]
    line = command.removeprefix("exec rq ").replace("$$RQ_QUEUES", "default").split()
    told = subprocess.run([sys.executable, "-m", "rq.cli", *line, "--help"], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert "--job-class holdfast.rq.RunJob" in command


def test_the_image_is_not_run_by_root() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("USER")] == ["USER 10001:10001"]
    assert all(":latest" not in line for line in lines if line.startswith("FROM"))


def test_the_image_gets_what_the_dockerfile_copies() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied: set[str] = set()
    for line in (ROOT / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            copied |= set(line.split()[1:-1])
    assert copied == kept
    assert all((ROOT / path).exists() for path in kept)
