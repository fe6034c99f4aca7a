"""A process of the shipped server: gunicorn's threaded worker, with our limits, errors and way to end."""

from __future__ import annotations

import logging
import socket
import struct
from secrets import token_hex
from typing import Any

import orjson
from gunicorn.http import errors  # type: ignore[import-untyped]
from gunicorn.workers.gthread import ThreadWorker  # type: ignore[import-untyped]

from holdfast.http.problems import KINDS, MEDIA_TYPE, document
from holdfast.http.service import EXTENSION, Service

# A peer that says nothing in the middle of a request, or takes nothing of its answer, frees its thread after this.
PATIENCE_SECONDS = 30
_PATIENCE = struct.pack("ll", PATIENCE_SECONDS, 0)

REASONS = {
    errors.LimitRequestLine: ("uri-too-long", "The request line is longer than 8190 bytes."),
    errors.LimitRequestHeaders: ("headers-too-large", "There are more than 100 headers, or one of over 8190 bytes."),
}


def _worth_telling(record: logging.LogRecord) -> bool:
    """A peer that was given up on is no error of the server."""
    return not (record.exc_info and isinstance(record.exc_info[1], BlockingIOError))


class ApiWorker(ThreadWorker):  # type: ignore[misc]
    """Serves requests, each in a thread."""

    def init_process(self) -> None:
        self.log.error_log.addFilter(_worth_telling)
        super().init_process()

    def handle(self, conn: Any) -> Any:
        if not conn.initialized:
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                conn.sock.setsockopt(socket.SOL_SOCKET, option, _PATIENCE)
        return super().handle(conn)

    def handle_exit(self, sig: int, frame: Any) -> None:
        service = self._service()
        if service is not None:
            service.stop_streams()
        super().handle_exit(sig, frame)

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        """Answer what never became a request as a problem too."""
        kind, detail = next(
            (reason for cls, reason in REASONS.items() if isinstance(exc, cls)),
            ("bad-request", "This is not a valid HTTP request.")
            if isinstance(exc, errors.ParseException)
            else ("internal-error", ""),
        )
        if kind == "internal-error":
            self.log.error("a connection failed", exc_info=exc)
        try:
            client.settimeout(1.0)
            client.sendall(_written(kind, detail))
        except OSError:
            self.log.debug("nobody took the answer to a bad request")

    def close_service(self) -> None:
        service = self._service()
        if service is not None:
            service.close()

    def _service(self) -> Service | None:
        app = getattr(self, "wsgi", None)
        found: Service | None = app.extensions[EXTENSION] if app is not None else None
        return found


def _written(kind: str, detail: str) -> bytes:
    request_id = token_hex(8)
    body = orjson.dumps(document(kind, detail, request_id=request_id))
    head = (
        f"HTTP/1.1 {KINDS[kind].status} {KINDS[kind].title}\r\n"
        f"Content-Type: {MEDIA_TYPE}\r\nContent-Length: {len(body)}\r\n"
        f"X-Content-Type-Options: nosniff\r\nX-Request-Id: {request_id}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
