"""The sink that posts to a webhook: one request per event, no redirects, and a timeout for the whole request."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata

import orjson

from holdfast.domain.errors import BadInput
from holdfast.outbox import envelope
from holdfast.outbox.addresses import AddressRefused, Endpoint, endpoint_of, resolve
from holdfast.outbox.envelope import CONTENT_TYPE, cloud_event
from holdfast.outbox.responses import Answer, delay_of, retry_after_of
from holdfast.runtime.settings import Settings
from holdfast.sql.deliveries import Delivery, Held


class WebhookSink:
    """Posts one event at a time and keeps a log of deliveries."""

    batch = 1
    keep = True

    def __init__(self, settings: Settings) -> None:
        self._source = settings.event_source
        self._seconds = settings.webhook_seconds
        self._allow_private = settings.webhook_allow_private
        self._agent = f"holdfast/{metadata.version('holdfast')}"

    def send(self, held: Held, deliveries: Sequence[Delivery]) -> Answer:
        """Post one event and return the response. Never raises because of the receiver."""
        delivery = deliveries[0]
        try:
            endpoint = endpoint_of(held.target, allow_private=self._allow_private)
            addresses = resolve(endpoint, allow_private=self._allow_private)
            body = orjson.dumps(cloud_event(delivery, self._source))
            return self._post(endpoint, addresses, body, self._headers(held, delivery, body))
        except (AddressRefused, BadInput) as error:
            return Answer(False, error=f"refused: {error}")
        except (OSError, http.client.HTTPException, ValueError) as error:
            return Answer(False, error=f"{type(error).__name__}: {error}"[:500])

    delay = staticmethod(delay_of)

    def close(self) -> None:
        pass

    def _headers(self, held: Held, delivery: Delivery, body: bytes) -> dict[str, str]:
        return {
            "content-type": CONTENT_TYPE,
            "user-agent": self._agent,
            "connection": "close",
            **envelope.headers(held.secret or "", delivery.event_id, int(time.time()), body),
        }

    def _post(self, endpoint: Endpoint, addresses: Sequence[str], body: bytes, headers: dict[str, str]) -> Answer:
        connection = _Pinned(endpoint, addresses, self._seconds)
        # A socket timeout limits each wait; a receiver that sends a byte now and then would never exceed it.
        watchdog = threading.Timer(self._seconds, connection.abort)
        watchdog.daemon = True
        watchdog.start()
        try:
            connection.request("POST", endpoint.path, body, headers)
            response = connection.getresponse()
            if connection.aborted:
                return self._too_slow()
            retry_after = retry_after_of(response.headers.get("retry-after"), datetime.now(UTC))
            if 200 <= response.status < 300:
                return Answer(True, response.status)
            why = f"responded with {response.status} {response.reason}"[:500]
            return Answer(False, response.status, why, retry_after)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if connection.aborted:
                return self._too_slow()
            raise error
        finally:
            watchdog.cancel()
            connection.close()

    def _too_slow(self) -> Answer:
        return Answer(False, error=f"no response within {self._seconds:g} s")


class _Pinned(http.client.HTTPConnection):
    """A connection to one of these addresses, regardless of what the name resolves to now."""

    def __init__(self, endpoint: Endpoint, addresses: Sequence[str], seconds: float) -> None:
        super().__init__(endpoint.host, endpoint.port, timeout=seconds)
        self._tls = endpoint.tls
        self._addresses = addresses
        self._ends = time.monotonic() + seconds
        self.aborted = False

    def connect(self) -> None:
        self.sock = self._reach()
        if self._tls:
            context = ssl.create_default_context()
            self.sock = context.wrap_socket(self.sock, server_hostname=self.host, do_handshake_on_connect=False)
            self.sock.do_handshake()

    def _reach(self) -> socket.socket:
        for address in self._addresses[:-1]:
            try:
                return socket.create_connection((address, self.port), self._left())
            except OSError:
                continue
        return socket.create_connection((self._addresses[-1], self.port), self._left())

    def _left(self) -> float:
        return max(0.05, self._ends - time.monotonic())

    def abort(self) -> None:
        """Called by the watchdog: a call waiting on the socket gets an error."""
        self.aborted = True
        if self.sock is not None:
            with suppress(OSError):
                socket.socket.shutdown(self.sock, socket.SHUT_RDWR)
