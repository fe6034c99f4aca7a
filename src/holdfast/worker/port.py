"""The port of a worker: liveness, readiness and metrics.

Requests are answered in separate threads, so they do not involve the worker's event loop. If the database is down, the
worker reports that it is not ready, and nothing else changes. This module needs only the standard library.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic
from typing import Any

import psycopg

from holdfast.domain.errors import ConfigurationError, HoldfastError
from holdfast.drivers.faults import TAKES_NO_WRITES
from holdfast.drivers.psycopg import OwnConnection
from holdfast.drivers.sessions import Session
from holdfast.worker.figures import Family, Figures
from holdfast.worker.supervisor import Worker

LOOP_ANSWERS_WITHIN = 5.0
PING_KEPT = 1.0
PING = Session("health", statement_timeout=2.0, read_timeout=3.0)
DOES_NOT_RESPOND = "Postgres does not respond"
REQUEST_SECONDS = 5.0
AT_ONCE = 16
TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Database:
    """Whether the worker's database responds and accepts writes.

    It is checked at most once a second, over a connection that is kept open.
    """

    def __init__(self, url: str, pooler: str) -> None:
        self._url = url
        self._pooler = pooler
        self._lock = threading.Lock()
        self._connection: OwnConnection | None = None
        self._asked_at = -PING_KEPT
        self._trouble: str | None = None

    def trouble(self) -> str | None:
        """Return why the worker cannot use the database; None if it can."""
        with self._lock:
            if monotonic() - self._asked_at > PING_KEPT:
                self._trouble = self._ping()
                self._asked_at = monotonic()
            return self._trouble

    def _ping(self) -> str | None:
        for _ in range(2):  # the open connection may have been lost in the meantime
            kept = self._connection is not None
            try:
                if self._connection is None:
                    self._connection = OwnConnection.connect(
                        self._url, session=PING, pooler=self._pooler, connect_timeout=2
                    )
                row = self._connection.execute("select pg_is_in_recovery()").fetchone()
            except (psycopg.Error, OSError, HoldfastError):
                self.close()
                if kept:
                    continue
                return DOES_NOT_RESPOND
            return f"Postgres {TAKES_NO_WRITES}" if row == (True,) else None
        return DOES_NOT_RESPOND

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class WorkerPort:
    """Serves /livez, /readyz and /metrics of a worker until it is closed."""

    def __init__(self, worker: Worker, figures: Figures, host: str, port: int) -> None:
        self._worker = worker
        self._figures = figures
        self._database = Database(worker.options.database_url, worker.options.pooler)
        self._answers: dict[str, Callable[[], tuple[int, str, str]]] = {
            "/livez": self._live,
            "/readyz": self._ready,
            "/metrics": self._metrics,
        }
        try:
            self._server = _Server((host, port), self.answer)
        except OSError as error:
            raise ConfigurationError(
                f"the worker cannot listen on {host} port {port}: {error.strerror or error}. Choose another "
                "--health-port (HOLDFAST_WORKER_PORT), or 0 for a free one."
            ) from error
        threading.Thread(target=self._server.serve_forever, name="holdfast-port", daemon=True).start()

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        shown = host if isinstance(host, str) else host.decode()
        return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._database.close()

    def answer(self, path: str) -> tuple[int, str, str]:
        """Return status, content type and body for a path."""
        known = self._answers.get(path.partition("?")[0])
        if known is None:
            return 404, "text/plain; charset=utf-8", f"not found; this port serves {', '.join(self._answers)}\n"
        return known()

    def _live(self) -> tuple[int, str, str]:
        return _checks({"loop": self._worker.answers(LOOP_ANSWERS_WITHIN)}, {})

    def _ready(self) -> tuple[int, str, str]:
        refusal, trouble = self._worker.refusal, self._database.trouble()
        return _checks(
            {
                "registered": self._worker.registered,
                "claiming": refusal is None and not self._worker.draining,
                "postgres": trouble is None,
            },
            {"claiming": refusal, "postgres": trouble},
        )

    def _metrics(self) -> tuple[int, str, str]:
        return 200, TEXT, "".join(family.text() for family in (*self._gauges(), *self._figures.families()))

    def _gauges(self) -> Iterable[Family]:
        worker, options = self._worker, self._worker.options
        for name, about, value in (
            ("slots", "How many runs this worker executes at once.", options.executor.slots),
            ("runs", "Runs that this worker holds: those it executes and those waiting for a slot.", worker.held),
            ("registered", "Whether this worker is registered and holds its lease.", worker.registered),
            ("draining", "Whether this worker has stopped claiming runs.", worker.draining),
            (
                "database_up",
                "Whether Postgres responds to this worker and accepts writes.",
                not self._database.trouble(),
            ),
        ):
            yield Family(f"holdfast_worker_{name}", "gauge", about, {(): float(value)})


def _checks(checks: dict[str, bool], reasons: dict[str, str | None]) -> tuple[int, str, str]:
    well = all(checks.values())
    document: dict[str, Any] = {
        "status": "ok" if well else "down",
        "checks": {name: "ok" if fine else "down" for name, fine in checks.items()},
    }
    known = {name: why for name, why in reasons.items() if why is not None}
    if known:
        document["reasons"] = known
    return 200 if well else 503, "application/json", json.dumps(document) + "\n"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], answer: Callable[[str], tuple[int, str, str]]) -> None:
        self.answer = answer
        self._free = threading.BoundedSemaphore(AT_ONCE)
        if ":" in address[0]:
            import socket

            self.address_family = socket.AF_INET6
        super().__init__(address, _Request)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, unless the maximum number of requests is already being answered."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: the client disconnected or did not speak HTTP."""


class _Request(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_SECONDS
    server_version = "holdfast"
    sys_version = ""

    def do_GET(self) -> None:
        status, kind, body = self.server.answer(self.path)
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the standard library's name
        """Do nothing: probes come every few seconds."""
