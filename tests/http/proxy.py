"""A proxy for Postgres that can be cut, so that Postgres seems to be down, and restored."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress

from psycopg.conninfo import conninfo_to_dict, make_conninfo


class Proxy:
    """Forwards connections to a server. When it is cut, it closes all of them and refuses new ones."""

    def __init__(self, url: str) -> None:
        self._target = conninfo_to_dict(url)
        self._listener: socket.socket | None = None
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._flows = threading.Event()
        self._flows.set()
        self.port = 0
        self.restore()
        self.url = make_conninfo(url, host="127.0.0.1", port=self.port)

    def restore(self) -> None:
        """Accept connections again, on the same port."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """Close everything. New connections are refused."""
        self._flows.set()
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    close = cut

    def hang(self) -> None:
        """Accept data and forward nothing, like a suspended server."""
        self._flows.clear()

    def go_on(self) -> None:
        self._flows.set()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                threading.Thread(target=self._pass, args=(near,), daemon=True).start()

    def _connect(self) -> socket.socket:
        host, port = str(self._target.get("host", "127.0.0.1")), self._target.get("port", 5432)
        if not host.startswith("/"):
            return socket.create_connection((host, int(port)))
        far = socket.socket(socket.AF_UNIX)
        far.connect(f"{host}/.s.PGSQL.{port}")
        return far

    def _pass(self, near: socket.socket) -> None:
        self._flows.wait()
        with near, suppress(OSError), self._connect() as far, selectors.DefaultSelector() as ready:
            pair = (near, far)
            with self._lock:
                self._pairs.add(pair)
            ready.register(near, selectors.EVENT_READ, far)
            ready.register(far, selectors.EVENT_READ, near)
            while True:
                for key, _ in ready.select():
                    data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                    if not data:
                        return
                    self._flows.wait()
                    key.data.sendall(data)
