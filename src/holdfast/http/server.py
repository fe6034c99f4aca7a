"""The API server: gunicorn, configured and started here.

The parent process holds the port and starts processes; each opens its own connections after the fork. An event loop
receives requests and threads answer them. Each stream or large result occupies a thread while it is sent, so there
are threads for all of these, and more for other requests.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gunicorn.app.base import BaseApplication  # type: ignore[import-untyped]
from gunicorn.glogging import Logger  # type: ignore[import-untyped]

from holdfast.domain.errors import ConfigurationError
from holdfast.drivers import psycopg as driver
from holdfast.http import create_app
from holdfast.http.bridge import Bridge
from holdfast.http.hosts import is_loopback
from holdfast.observe import emit
from holdfast.observe.capture import adopt_logging
from holdfast.observe.logs import process_log
from holdfast.ops.tokens import count_usable_tokens
from holdfast.processes.signals import requested
from holdfast.runtime.runtime import Runtime, connect
from holdfast.runtime.settings import Settings

REQUEST_THREADS = 32
MAX_CONNECTIONS = 20_000
MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            made.listen(1024)
        except OSError:
            made.close()
            raise
    except OSError as error:
        raise ConfigurationError(
            f"the API cannot listen on {host} port {port}: {error.strerror or error}. "
            "Set HOLDFAST_HOST and HOLDFAST_PORT to an address that is free."
        ) from error
    return made


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(
    settings: Settings,
    *,
    processes: int = 1,
    listener: socket.socket | None = None,
    started: Callable[[str], None] | None = None,
) -> None:
    """Serve the API until SIGTERM or SIGINT; `started` is called with its URL. Ends with SystemExit."""
    announce = _announcer(started)
    with process_log(settings.log_format, settings.log_level) as output, Runtime(settings, lasting=True) as runtime:
        adopt_logging(output)
        if not is_loopback(settings.host):
            require_token(runtime.database_url, settings.host)
        listener = listener or listen(settings.host, settings.port)
        # The parent keeps the embedded server running; its children only need the address.
        settings = replace(settings, database_url=runtime.database_url)
        metrics_directory = tempfile.mkdtemp(prefix="holdfast-metrics-") if processes > 1 else None
        try:
            if metrics_directory is not None:
                os.environ[MULTIPROCESS] = metrics_directory
            url = url_of(listener)
            if requested:
                raise SystemExit(0)
            # gunicorn takes over the descriptor, and closes it once it has a copy.
            _Gunicorn(settings, listener.detach(), processes, lambda: announce(url)).run()
        finally:
            if metrics_directory is not None:
                shutil.rmtree(metrics_directory, ignore_errors=True)


def _announcer(started: Callable[[str], None] | None) -> Callable[[str], None]:
    """Return a function that reports the URL: to the caller, with the current output streams, or as an event."""
    if started is None:
        return lambda url: emit("api.started", url=url)
    out, err = sys.stdout, sys.stderr

    def announce(url: str) -> None:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            started(url)

    return announce


def require_token(database_url: str, host: str) -> None:
    """Raise unless there is a token: a server that other machines can reach always requires one."""
    with connect(database_url) as connection:
        usable = driver.run(connection, count_usable_tokens())
    if not usable:
        raise ConfigurationError(
            f"the API would be open to anyone who can reach {host}, because there is no token. "
            "Create one first: holdfast tokens create NAME"
        )


class GunicornLog(Logger):  # type: ignore[misc]
    """gunicorn's logger without its own handlers: its messages go to the same log as everything else."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for handler in self.error_log.handlers[:]:
            self.error_log.removeHandler(handler)
        self.error_log.propagate = True


class _Gunicorn(BaseApplication):  # type: ignore[misc]
    """gunicorn, configured only here: it reads no file, environment variable or argument."""

    def __init__(self, settings: Settings, listener: int, processes: int, started: Callable[[], None]) -> None:
        self._settings = settings
        self._listener = listener
        self._processes = processes
        self._started = started
        super().__init__()

    def load_config(self) -> None:
        configured: dict[str, Any] = {
            "bind": f"fd://{self._listener}",
            "worker_class": "holdfast.http.worker.ApiWorker",
            "workers": self._processes,
            "worker_connections": MAX_CONNECTIONS,
            "http_parser": "python",
            "asgi_loop": "auto",
            "keepalive": 75,
            "timeout": 60,
            "graceful_timeout": max(1, int(self._settings.grace_seconds)),
            "limit_request_line": 8190,
            "control_socket_disable": True,
            "proc_name": "holdfast api",
            "loglevel": "warning",
            "logger_class": GunicornLog,
            "when_ready": self._ready,
            "child_exit": _child_exit,
            "worker_exit": _worker_exit,
        }
        for name, value in configured.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        return Bridge(
            create_app(self._settings),
            max_body_bytes=self._settings.max_body_bytes,
            threads=2 * self._settings.max_streams + REQUEST_THREADS,
        )

    def _ready(self, arbiter: Any) -> None:
        self._started()


def _child_exit(arbiter: Any, worker: Any) -> None:
    if MULTIPROCESS in os.environ:
        from prometheus_client import multiprocess

        multiprocess.mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]


def _worker_exit(arbiter: Any, worker: Any) -> None:
    if hasattr(worker, "asgi"):
        worker.service.close()
