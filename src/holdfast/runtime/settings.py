"""Settings: from the environment, else from `holdfast.toml`, else the default. The origin of each value is recorded.

An unknown or invalid setting prevents the start, with one line that says what to do.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from math import inf
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.masking import mask_address
from holdfast.domain.times import FURTHEST, is_duration
from holdfast.executors.ray_addresses import refuse_secrets

PREFIX = "HOLDFAST_"
FILE = "holdfast.toml"


def _whole(least: int, most: float = inf, unit: str = "") -> Callable[[str], int]:
    def parse(value: str) -> int:
        number = int(value)
        if number < least:
            raise ValueError(f"must be at least {least}")
        if number > most:
            raise ValueError(f"must be at most {most}{unit}")
        return number

    return parse


_port = _whole(0, 65535)
_days = _whole(1, FURTHEST.days, " days")
_attempts = _whole(1, 1_000_000)


def _postgres(value: str) -> str:
    """Return an address for libpq, without the driver that a SQLAlchemy URL may name."""
    scheme, separator, rest = value.partition("://")
    if not separator:
        if value and "=" not in value:
            raise ValueError("must be postgresql://user:password@host:port/name, or name=value pairs")
        return value
    if scheme.partition("+")[0] not in ("postgresql", "postgres"):
        raise ValueError("must be the URL of a PostgreSQL server, postgresql://…")
    return f"postgresql://{rest}"


def _seconds(value: str) -> float:
    number = float(value)
    if not is_duration(number):
        raise ValueError("must be a positive number of seconds below 1e9")
    return number


def _flag(value: str) -> bool:
    if value.lower() not in ("1", "true", "yes", "on", "0", "false", "no", "off"):
        raise ValueError("must be true or false")
    return value.lower() in ("1", "true", "yes", "on")


def _names(value: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",") if name.strip())


def _clusters(value: str) -> tuple[str, ...]:
    """Return clusters as `name=address`; a name may have two, that of the job server and that of the GCS."""
    found = _names(value)
    for one in found:
        name, equals, address = one.partition("=")
        if not (name and equals and address):
            raise ValueError("must be name=address pairs, such as gpu=http://10.0.0.5:8265,gpu=10.0.0.5:6379")
    return found


def _environments(value: str) -> Mapping[str, Any]:
    """Return Ray runtime environments by name. Those that would publish a secret are rejected."""
    found = json.loads(value)
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise ValueError('must be a JSON object of runtime environments, such as {"torch": {"pip": ["torch==2.9"]}}')
    for name, environment in found.items():
        refuse_secrets(name, environment)
    return found


def _one_of(*allowed: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}")
        return value

    return parse


def _attempts_from_retries(value: str) -> int:
    return _attempts(str(_whole(0)(value) + 1))


# Values that are stored, or added to a time. The bounds also apply to settings created in Python.
BOUNDED = (_seconds, _days, _attempts)


class Source(NamedTuple):
    """How one setting is read: its parser and its aliases."""

    parse: Callable[[str], Any]
    aliases: tuple[tuple[str, Callable[[str], Any]], ...] = ()
    secret: bool = False


def _setting(
    default: Any, parse: Callable[[str], Any], *aliases: str | tuple[str, Callable[[str], Any]], secret: bool = False
) -> Any:
    pairs = tuple(alias if isinstance(alias, tuple) else (alias, parse) for alias in aliases)
    return field(default=default, metadata={"source": Source(parse, pairs, secret)})


@dataclass(frozen=True)
class Settings:
    """Every setting. The field `lease_seconds` is HOLDFAST_LEASE_SECONDS in the environment, and so on."""

    database_url: str | None = _setting(None, _postgres, "DATABASE_URL", secret=True)
    pooler: str = _setting("auto", _one_of("auto", "on", "off", "prepared"))
    redis_url: str | None = _setting(None, str, "REDIS_URL", secret=True)
    home: str = _setting(".holdfast", str)
    doorbell: str = _setting("auto", _one_of("auto", "poll", "listen", "redis", "rq"))
    tasks: tuple[str, ...] = _setting((), _names)
    host: str = _setting("127.0.0.1", str)
    port: int = _setting(8080, _port)
    worker_host: str = _setting("127.0.0.1", str)
    worker_port: int | None = _setting(None, _port)
    hosts: tuple[str, ...] = _setting((), _names)
    url: str | None = _setting(None, str)
    token: str | None = _setting(None, str, secret=True)
    artifacts: str = _setting("artifacts", str)
    inline_result_bytes: int = _setting(65536, _whole(0))
    max_result_bytes: int = _setting(64 * 1024 * 1024, _whole(1))
    lease_seconds: float = _setting(60.0, _seconds)
    renew_seconds: float = _setting(15.0, _seconds, "WORKER_HEARTBEAT_INTERVAL")
    grace_seconds: float = _setting(10.0, _seconds)
    task_timeout_seconds: float | None = _setting(None, _seconds, "WORKER_TASK_TIMEOUT")
    job_timeout_seconds: float | None = _setting(None, _seconds, "JOB_DEFAULT_TIMEOUT")
    max_attempts: int = _setting(3, _attempts, ("WORKER_MAX_RETRIES", _attempts_from_retries))
    child_max_runs: int = _setting(100_000, _whole(1))
    child_max_memory_bytes: int = _setting(512 * 1024 * 1024, _whole(1))
    child_max_descriptors: int = _setting(500, _whole(1))
    child_max_seconds: float | None = _setting(None, _seconds)
    child_begin_seconds: float = _setting(10.0, _seconds)
    dedupe_seconds: float = _setting(600.0, _seconds)
    key_seconds: float = _setting(86400.0, _seconds)
    retention_days: int = _setting(90, _days)
    ring_seconds: float = _setting(15.0, _seconds)
    event_source: str = _setting("/holdfast", str)
    stream_length: int = _setting(100_000, _whole(1))
    webhook_seconds: float = _setting(15.0, _seconds)
    webhook_allow_private: bool = _setting(False, _flag)
    delivery_days: int = _setting(7, _days)
    ray_address: tuple[str, ...] = _setting((), _names)
    ray_clusters: tuple[str, ...] = _setting((), _clusters)
    ray_environments: Mapping[str, Any] | None = _setting(None, _environments)
    log_format: str = _setting("auto", _one_of("auto", "json", "pretty"))
    log_level: str = _setting("info", _one_of("debug", "info", "warning", "error"))
    max_body_bytes: int = _setting(1024 * 1024, _whole(1))
    max_json_depth: int = _setting(64, _whole(1))
    max_page: int = _setting(200, _whole(1))
    page: int = _setting(50, _whole(1))
    max_tags: int = _setting(32, _whole(0))
    max_tag_length: int = _setting(64, _whole(1))
    max_key_length: int = _setting(255, _whole(1))
    max_streams: int = _setting(256, _whole(1))
    api_connections: int = _setting(10, _whole(1))
    origins: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, source in _sources().items():
            value = getattr(self, name)
            if source.parse in BOUNDED and value is not None:
                _parsed(name, str(value), source.parse, secret=False)
        if self.renew_seconds * 3 > self.lease_seconds:
            raise ConfigurationError(
                f"a lease of {self.lease_seconds:g} s that is renewed every {self.renew_seconds:g} s would not survive "
                "two missed renewals; set HOLDFAST_RENEW_SECONDS to a third of HOLDFAST_LEASE_SECONDS or less"
            )
        if self.doorbell in ("redis", "rq") and not self.redis_url:
            raise ConfigurationError(
                f"HOLDFAST_DOORBELL={self.doorbell} needs Redis; set HOLDFAST_REDIS_URL, such as redis://localhost:6379/0"
            )
        if self.page > self.max_page:
            raise ConfigurationError(f"HOLDFAST_PAGE ({self.page}) exceeds HOLDFAST_MAX_PAGE ({self.max_page})")

    def given_database_url(self) -> str | None:
        """Return the database URL, or None for the embedded server. An empty URL, probably a mistake, is rejected."""
        if self.database_url == "":
            origin = self.origins.get("database_url", "setting database_url").removeprefix("environment ")
            raise ConfigurationError(
                f"the database URL is empty ({origin}); unset it to use the embedded server, or set "
                "HOLDFAST_DATABASE_URL to a URL such as postgresql://user:password@host:5432/name"
            )
        return self.database_url

    def ray_addresses(self, cluster: str | None = None) -> tuple[str, ...]:
        """Return the addresses of a Ray cluster by its name, or of the one without a name."""
        if cluster is None:
            return self.ray_address
        pairs = [one.partition("=") for one in self.ray_clusters]
        found = tuple(address for name, _, address in pairs if name == cluster)
        if not found:
            known = ", ".join(dict.fromkeys(name for name, _, _ in pairs)) or "none"
            raise ConfigurationError(f"HOLDFAST_RAY_CLUSTERS has no cluster {cluster!r}; it has {known}")
        return found

    def shown(self) -> list[tuple[str, str, str]]:
        """Return each setting as (name, value, origin), with secrets masked."""
        return [
            (name, masked(value) if source.secret else _written(value), self.origins.get(name, "default"))
            for name, source in _sources().items()
            for value in [getattr(self, name)]
        ]


def _written(value: Any) -> str:
    if value is None:
        return ""
    return ",".join(value) if isinstance(value, tuple) else str(value)


def masked(value: str | None) -> str:
    """Return a URL without its passwords; other secrets are hidden completely."""
    return mask_address(value) if value else ""


def _sources() -> dict[str, Source]:
    return {f.name: f.metadata["source"] for f in fields(Settings) if "source" in f.metadata}


def load(environment: Mapping[str, str] | None = None, directory: Path | None = None) -> Settings:
    """Read all settings. The environment wins over the file."""
    environment = os.environ if environment is None else environment
    path = (directory or Path.cwd()) / FILE
    written = _read_file(path)
    sources = _sources()
    _refuse_unknown(environment, written, sources, path)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name, source in sources.items():
        variable = PREFIX + name.upper()
        candidates = [(variable, source.parse), *source.aliases]
        for key, parse in candidates:
            if environment.get(key):
                values[name] = _parsed(key, environment[key], parse, source.secret)
                origins[name] = f"environment {key}"
                break
        else:
            if name in written:
                values[name] = _parsed(name, written[name], source.parse, source.secret)
                origins[name] = str(path)
    if "database_url" not in values and environment.get("POSTGRES_HOST"):
        values["database_url"], origins["database_url"] = _from_parts(environment), "environment POSTGRES_*"
    # Empty variables count as unset, except for the database URL: falling back could select an unintended database.
    empty = [key for key in (f"{PREFIX}DATABASE_URL", "DATABASE_URL") if key in environment]
    if "database_url" not in values and empty:
        values["database_url"], origins["database_url"] = "", f"environment {empty[0]}"
    if "renew_seconds" not in values and "lease_seconds" in values:
        values["renew_seconds"], origins["renew_seconds"] = values["lease_seconds"] / 4, "a quarter of lease_seconds"
    # The system that the alias comes from has no lease, so the lease is adapted to the heartbeat.
    alone = "lease_seconds" not in values and origins.get("renew_seconds") == "environment WORKER_HEARTBEAT_INTERVAL"
    if alone and values["renew_seconds"] * 3 > Settings.lease_seconds:
        values["lease_seconds"], origins["lease_seconds"] = values["renew_seconds"] * 3, "three times renew_seconds"
    return Settings(**values, origins=origins)


def _from_parts(environment: Mapping[str, str]) -> str:
    """Return the address from the variables of the postgres image; the host may be the directory of a socket."""

    def part(name: str, default: str) -> str:
        return quote(environment.get(f"POSTGRES_{name}") or default, safe="")

    host, user = environment["POSTGRES_HOST"], part("USER", "postgres")
    place = f"[{host}]" if ":" in host else quote(host, safe="")
    password = part("PASSWORD", "")
    secret = f":{password}" if password else ""
    database = part("DB", "") or user
    return f"postgresql://{user}{secret}@{place}:{part('PORT', '5432')}/{database}"


def _read_file(path: Path) -> dict[str, str]:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    import tomllib  # most processes have no such file, and a Ray job waits for its imports

    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    return {key: ",".join(map(str, value)) if isinstance(value, list) else str(value) for key, value in content.items()}


def _parsed(name: str, text: str, parse: Callable[[str], Any], secret: bool) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        shown = masked(text) if secret else repr(text)
        raise ConfigurationError(f"setting {name} cannot be {shown}: {error}") from error


def _refuse_unknown(
    environment: Mapping[str, str], written: Mapping[str, str], sources: Mapping[str, Source], path: Path
) -> None:
    variables = {PREFIX + name.upper(): name for name in sources}
    for given, known, origin in (
        ([name for name in environment if name.startswith(PREFIX)], variables, "the environment"),
        (list(written), sources, str(path)),
    ):
        for name in given:
            if name not in known:
                near = _nearest(name, known)
                hint = f"did you mean {near[0]}?" if near else "`holdfast config show` lists all settings"
                raise ConfigurationError(f"unknown setting {name} in {origin}; {hint}")


def _nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return the known name closest to this one, if there is one, ignoring the common prefix."""
    bare = {other.removeprefix(PREFIX): other for other in known}
    return [bare[one] for one in difflib.get_close_matches(name.removeprefix(PREFIX), bare, n=1, cutoff=0.7)]
