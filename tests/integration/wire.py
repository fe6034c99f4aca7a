"""A proxy between a worker and its database that can cut connections or silently drop data."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit


class Wire:
    """Listens on its own port and forwards everything to the database, until it is cut."""

    def __init__(self, database_url: str) -> None:
        parts = urlsplit(database_url)
        query = parse_qs(parts.query)
        self._directory = query.get("host", [""])[0]
        self._server = (parts.hostname or "localhost", parts.port or int(query.get("port", ["5432"])[0]))
        self._listening = socket.create_server(("127.0.0.1", 0))
        port = self._listening.getsockname()[1]
        user = (
            f"{parts.username}:{parts.password}@" if parts.password else f"{parts.username}@" if parts.username else ""
        )
        self.url = f"postgresql://{user}127.0.0.1:{port}{parts.path}?sslmode=disable"
        self._whole = threading.Event()
        self._whole.set()
        self._pairs: set[socket.socket] = set()
        self._closing = False
        self._swallowing = False
        self._statements: list[tuple[str, str]] = []
        threading.Thread(target=self._accept, name="test-wire", daemon=True).start()

    def cut(self) -> None:
        """Close all connections and refuse new ones."""
        self._whole.clear()
        for one in list(self._pairs):
            _end(one)

    def swallow(self) -> None:
        """Silently drop all data in both directions."""
        self._swallowing = True

    def mend(self) -> None:
        self._swallowing = False
        self._whole.set()

    def statements(self, name: str) -> list[str]:
        """The statements executed so far on connections with this application_name."""
        return [statement for sender, statement in list(self._statements) if sender == name]

    def close(self) -> None:
        self._closing = True
        self._whole.set()
        self._listening.close()
        for one in list(self._pairs):
            _end(one)

    def _accept(self) -> None:
        while not self._closing:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if not self._whole.is_set():
                client.close()
                continue
            threading.Thread(target=self._join, args=(client,), daemon=True).start()

    def _join(self, client: socket.socket) -> None:
        try:
            server = self._connect()
        except OSError:
            client.close()
            return
        self._pairs |= {client, server}
        threading.Thread(target=self._pass, args=(client, server, Statements()), daemon=True).start()
        self._pass(server, client)
        self._pairs -= {client, server}
        client.close()
        server.close()

    def _connect(self) -> socket.socket:
        if self._directory.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{self._directory}/.s.PGSQL.{self._server[1]}")
            return server
        return socket.create_connection(self._server)

    def _pass(self, source: socket.socket, target: socket.socket, sent: Statements | None = None) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if self._swallowing:
                    continue
                if sent is not None:
                    self._statements += sent.feed(data)
                target.sendall(data)
        _end(source)
        _end(target)


class Statements:
    """Extracts the executed statements from the data that a client sends."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._started = False
        self._name = ""

    def feed(self, data: bytes) -> list[tuple[str, str]]:
        self._data += data
        found: list[str] = []
        while len(self._data) >= 5:
            # The first message has no type, all others begin with one.
            kind, at = (bytes(self._data[:1]), 1) if self._started else (b"", 0)
            length = at + int.from_bytes(self._data[at : at + 4], "big")
            if len(self._data) < length:
                break
            body = bytes(self._data[at + 4 : length])
            del self._data[:length]
            if not self._started:
                self._started = True
                settings = body[4:].split(b"\0")
                self._name = (
                    dict(zip(settings[::2], settings[1::2], strict=False)).get(b"application_name", b"").decode()
                )
            elif kind == b"Q":
                found += [text.strip() for text in body.rstrip(b"\0").decode().split(";") if text.strip()]
            elif kind == b"E":
                found.append("(prepared)")
        return [(self._name, statement) for statement in found]


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
