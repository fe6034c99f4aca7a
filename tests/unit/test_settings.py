"""Settings: from the environment, else the file, else the default; an invalid one gives a one-line error."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.domain.errors import ConfigurationError
from holdfast.runtime.settings import Settings, load, masked


def test_without_configuration_all_settings_are_defaults(tmp_path: Path) -> None:
    settings = load({}, tmp_path)
    assert settings == Settings()
    assert settings.origins == {}
    assert (settings.lease_seconds, settings.renew_seconds, settings.grace_seconds) == (60.0, 15.0, 10.0)
    assert (settings.host, settings.port, settings.artifacts, settings.home) == (
        "127.0.0.1",
        8080,
        "artifacts",
        ".holdfast",
    )


def test_environment_overrides_the_file(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('port = 9000\nlease_seconds = 7.5\ntasks = ["a.b", "c"]\n')
    settings = load({"HOLDFAST_PORT": "9001"}, tmp_path)
    assert settings.port == 9001
    assert settings.lease_seconds == 7.5
    assert settings.tasks == ("a.b", "c")
    assert settings.origins["port"] == "environment HOLDFAST_PORT"
    assert settings.origins["lease_seconds"] == str(tmp_path / "holdfast.toml")


def test_an_empty_variable_counts_as_unset(tmp_path: Path) -> None:
    assert load({"HOLDFAST_PORT": "", "HOLDFAST_TASKS": ""}, tmp_path) == Settings()


@pytest.mark.parametrize("name", ["HOLDFAST_DATABASE_URL", "DATABASE_URL"])
def test_empty_database_url_is_rejected(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"is empty \({name}\); unset it to use the embedded server, or set"):
        load({name: ""}, tmp_path).given_database_url()
    assert (
        load({name: "", "POSTGRES_HOST": "db"}, tmp_path).given_database_url()
        == "postgresql://postgres@db:5432/postgres"
    )
    (tmp_path / "holdfast.toml").write_text('database_url = ""')
    with pytest.raises(ConfigurationError, match="unset it"):
        load({}, tmp_path).given_database_url()


def test_lease_alone_sets_the_renewal_interval(tmp_path: Path) -> None:
    settings = load({"HOLDFAST_LEASE_SECONDS": "3"}, tmp_path)
    assert settings.renew_seconds == 0.75
    assert settings.origins["renew_seconds"] == "a quarter of lease_seconds"


@pytest.mark.parametrize(
    ("variable", "given", "name", "expected"),
    [
        ("WORKER_HEARTBEAT_INTERVAL", "10", "renew_seconds", 10.0),
        ("WORKER_TASK_TIMEOUT", "120", "task_timeout_seconds", 120.0),
        ("WORKER_MAX_RETRIES", "4", "max_attempts", 5),
        ("JOB_DEFAULT_TIMEOUT", "3600", "job_timeout_seconds", 3600.0),
        ("REDIS_URL", "redis://here:6379/0", "redis_url", "redis://here:6379/0"),
        ("DATABASE_URL", "postgres://u@h/d", "database_url", "postgresql://u@h/d"),
        ("DATABASE_URL", "postgresql+psycopg://u@h/d", "database_url", "postgresql://u@h/d"),
        ("HOLDFAST_DATABASE_URL", "host=/run/postgresql dbname=x", "database_url", "host=/run/postgresql dbname=x"),
    ],
)
def test_aliases_are_accepted(tmp_path: Path, variable: str, given: str, name: str, expected: object) -> None:
    settings = load({variable: given}, tmp_path)
    assert getattr(settings, name) == expected
    assert settings.origins[name] == f"environment {variable}"


def test_holdfast_name_overrides_an_alias(tmp_path: Path) -> None:
    both = {"DATABASE_URL": "postgresql://theirs/x", "HOLDFAST_DATABASE_URL": "postgresql://ours/x"}
    assert load(both, tmp_path).database_url == "postgresql://ours/x"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"POSTGRES_HOST": "db"}, "postgresql://postgres@db:5432/postgres"),
        ({"POSTGRES_HOST": "db", "POSTGRES_USER": "me"}, "postgresql://me@db:5432/me"),
        (
            {
                "POSTGRES_HOST": "db",
                "POSTGRES_PORT": "5433",
                "POSTGRES_USER": "me@home",
                "POSTGRES_PASSWORD": "a/b:c",
                "POSTGRES_DB": "x y",
            },
            "postgresql://me%40home:a%2Fb%3Ac@db:5433/x%20y",
        ),
        ({"POSTGRES_HOST": "/run/pg"}, "postgresql://postgres@%2Frun%2Fpg:5432/postgres"),
        ({"POSTGRES_HOST": "::1"}, "postgresql://postgres@[::1]:5432/postgres"),
    ],
)
def test_address_is_built_from_its_parts(tmp_path: Path, parts: dict[str, str], expected: str) -> None:
    settings = load(parts, tmp_path)
    assert settings.database_url == expected
    assert settings.origins["database_url"] == "environment POSTGRES_*"


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"HOLDFAST_LEASE_SECOND": "3"}, "did you mean HOLDFAST_LEASE_SECONDS?"),
        ({"HOLDFAST_ZZZ": "3"}, "unknown setting HOLDFAST_ZZZ in the environment"),
        ({"HOLDFAST_PORT": "eighty"}, "setting HOLDFAST_PORT cannot be 'eighty'"),
        ({"HOLDFAST_PORT": "65536"}, "must be at most 65535"),
        ({"HOLDFAST_LEASE_SECONDS": "nan"}, "must be a positive number of seconds"),
        ({"HOLDFAST_LEASE_SECONDS": "0"}, "must be a positive number of seconds"),
        ({"HOLDFAST_DOORBELL": "gong"}, "must be one of auto, poll, listen, redis, rq"),
        ({"HOLDFAST_RENEW_SECONDS": "30"}, "set HOLDFAST_RENEW_SECONDS to a third of HOLDFAST_LEASE_SECONDS or less"),
        ({"HOLDFAST_PAGE": "500"}, "HOLDFAST_PAGE (500) exceeds HOLDFAST_MAX_PAGE (200)"),
        ({"DATABASE_URL": "sqlite:///db.sqlite3"}, "must be the URL of a PostgreSQL server"),
    ],
)
def test_invalid_value_is_rejected_by_name(tmp_path: Path, environment: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load(environment, tmp_path)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("lease_secnds = 3", "unknown setting lease_secnds in"),
        ("lease_secnds = 3", "did you mean lease_seconds?"),
        ("[worker]\nslots = 3", "unknown setting worker in"),
        ("port = ", "cannot be read"),
        ('port = "x"', "setting port cannot be 'x'"),
    ],
)
def test_invalid_file_setting_is_rejected_by_name(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "holdfast.toml").write_text(content)
    with pytest.raises(ConfigurationError) as refused:
        load({}, tmp_path)
    assert message in str(refused.value)
    assert "holdfast.toml" in str(refused.value) or "setting port" in str(refused.value)


def test_unreadable_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").mkdir()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load({}, tmp_path)


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("HOLDFAST_LEESE", "`holdfast config show` lists all settings"),
        ("HOLDFAST_XYZ", "`holdfast config show` lists all settings"),
        ("HOLDFAST_LEESE_SECONDS", "did you mean HOLDFAST_LEASE_SECONDS?"),
        ("HOLDFAST_PROT", "did you mean HOLDFAST_PORT?"),
        ("HOLDFAST_TASK", "did you mean HOLDFAST_TASKS?"),
    ],
)
def test_an_unknown_setting_suggests_only_a_name_that_is_close(tmp_path: Path, given: str, hint: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load({given: "1"}, tmp_path)
    assert str(refused.value).endswith(hint)


def test_error_does_not_show_a_password(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load({"DATABASE_URL": "mysql://me:hunter2@db/x"}, tmp_path)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("secret", "shown"),
    [
        (None, ""),
        ("", ""),
        ("hf_abcdef", "********"),
        ("hf:abcdef", "********"),
        ("host=db password=hunter2", "********"),
        ("postgresql://db/x", "postgresql://db/x"),
        ("postgresql://me@db/x", "postgresql://me@db/x"),
        ("postgresql://me:hunter2@db:5432/x", "postgresql://me:********@db:5432/x"),
        ("redis://:hunter2@db/0", "redis://:********@db/0"),
        ("postgresql://me@db/x?password=hunter2&a=b", "postgresql://me@db/x?password=********&a=b"),
        ("postgresql://[::1", "********"),
        ("postgresql://me:hunt%er2@db/x", "postgresql://me:********@db/x"),
        ("postgresql://me:hunt er2@db/x", "postgresql://me:********@db/x"),
        ("postgresql://me:hunt@er2@db/x", "postgresql://me:********@db/x"),
        ("postgresql://me:hunt/er2@db/x", "postgresql://me:********@db/x"),
        ("postgresql://me:hunt#er2@db/x", "postgresql://me:********@db/x"),
        ("postgresql://me:hunt?er2@db/x", "postgresql://me:********@db/x"),
        ("postgresql://me:hunt://er2@db/x", "postgresql://me:********@db/x"),
        ("postgresql://me:[hunter2@db/x", "postgresql://me:********@db/x"),
        ("postgresql://me:hunter2/x", "********"),
        ("postgresql://me@db/x?password=hunt@er2", "postgresql://me@db/x?password=********"),
        ("postgresql://me@db/x?sslpassword=hunt#er2&a=b", "postgresql://me@db/x?sslpassword=********&a=b"),
        ("postgresql://a:1,[::1]:2/x", "postgresql://a:1,[::1]:2/x"),
        ("me:hunter2@db/x", "********"),
        ("me:hunter2@db/x?u=a://b", "********"),
    ],
)
def test_secrets_are_masked(secret: str | None, shown: str) -> None:
    assert masked(secret) == shown


def test_every_setting_is_shown_with_its_origin(tmp_path: Path) -> None:
    settings = load({"HOLDFAST_DATABASE_URL": "postgresql://me:hunter2@db/x", "HOLDFAST_TASKS": "a, b"}, tmp_path)
    shown = {name: (value, origin) for name, value, origin in settings.shown()}
    assert shown["database_url"] == ("postgresql://me:********@db/x", "environment HOLDFAST_DATABASE_URL")
    assert shown["tasks"] == ("a,b", "environment HOLDFAST_TASKS")
    assert shown["port"] == ("8080", "default")
    assert "hunter2" not in str(shown)
