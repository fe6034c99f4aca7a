"""A process of the shipped server: gunicorn's threaded worker, with our limits, errors and way to end."""

from __future__ import annotations

import logging
import socket
import struct
from functools import partial
from secrets import token_hex
from typing import Any

import orjson
from gunicorn.http import errors  # type: ignore[import-untyped]
from gunicorn.http.unreader import SocketUnreader  # type: ignore[import-untyped]
from gunicorn.workers.gthread import TConn, ThreadWorker  # type: ignore[import-untyped]

from holdfast.http.problems import KINDS, MEDIA_TYPE, Refusal, document
from holdfast.http.service import EXTENSION, Service

# A peer that says nothing in the middle of a request frees its thread after this,
PATIENCE_SECONDS = 10
# and one that takes nothing of its answer after this.
SEND_PATIENCE_SECONDS = 30
KEY = "IDEMPOTENCY-KEY"

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
            for option, seconds in (
                (socket.SO_RCVTIMEO, PATIENCE_SECONDS),
                (socket.SO_SNDTIMEO, SEND_PATIENCE_SECONDS),
            ):
                conn.sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, 0))
            conn.init = partial(_begin, conn)
        return super().handle(conn)

    def handle_request(self, req: Any, conn: Any) -> Any:
        """Keep two keys apart: WSGI would join them by a comma alone, which one key may have in it."""
        keys = [value for name, value in req.headers if name == KEY]
        if len(keys) > 1:
            req.headers = [header for header in req.headers if header[0] != KEY] + [(KEY, ", ".join(keys))]
        return super().handle_request(req, conn)

    def handle_exit(self, sig: int, frame: Any) -> None:
        service = self._service()
        if service is not None:
            service.stop_streams()
        super().handle_exit(sig, frame)

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        """Answer what never became a request as a problem too."""
        kind, detail = _reason(exc)
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


class _Patient(SocketUnreader):  # type: ignore[misc]
    """Reads a connection's requests. One that stops in the middle is refused, be it in its head or in its body."""

    def __init__(self, parser: Any) -> None:
        super().__init__(parser.unreader.sock)
        self._parser = parser

    def chunk(self, *size_hint: Any) -> bytes:
        try:
            read: bytes = super().chunk(*size_hint)
            return read
        except BlockingIOError:
            if self._parser.mesg is not None:
                self._parser.mesg.force_close()
            detail = f"The rest of the request did not come within {PATIENCE_SECONDS} seconds. Send it again."
            raise Refusal("request-timeout", detail) from None


def _begin(conn: Any) -> None:
    if not conn.initialized:
        TConn.init(conn)
        conn.parser.unreader = _Patient(conn.parser)


def _reason(error: BaseException) -> tuple[str, str]:
    if isinstance(error, Refusal):
        return error.kind, str(error)
    if isinstance(error, errors.ParseException):
        known = (reason for cls, reason in REASONS.items() if isinstance(error, cls))
        return next(known, ("bad-request", "This is not a valid HTTP request."))
    return "internal-error", ""


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
