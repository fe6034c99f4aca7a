"""The host of a ClickHouse directory: the one process that opens it and runs the queries of all others.

It exits after a while without queries. If it is killed, the next host can open the directory.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from holdfast.jobs.datasets.hosting import _HEAD, ADDRESS, _read

IDLE = 5.0


class Host:
    def __init__(self, directory: Path) -> None:
        from chdb.session import Session

        self._session: Any = Session(str(directory))
        self._directory = directory
        self._private = Path(tempfile.mkdtemp(prefix="holdfast-host-"))
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(self._private / "socket"))
        self._listening.listen(128)
        self._query_lock = threading.Lock()
        self._open = 0

    def serve(self) -> None:
        """Serve queries until there have been none for a while."""
        temporary = self._directory / f"{ADDRESS}.{os.getpid()}"
        temporary.write_text(json.dumps({"socket": str(self._private / "socket"), "pid": os.getpid()}))
        temporary.replace(self._directory / ADDRESS)
        self._listening.settimeout(IDLE)
        try:
            while True:
                try:
                    channel, _ = self._listening.accept()
                except TimeoutError:
                    if not self._open:
                        return
                    continue
                self._open += 1
                threading.Thread(target=self._answer, args=[channel], daemon=True).start()
        finally:
            self._leave()

    def _answer(self, channel: socket.socket) -> None:
        channel.settimeout(None)
        try:
            with channel:
                _, length = _HEAD.unpack(_read(channel, _HEAD.size))
                kind, answer = self._query(_read(channel, length).decode())
                channel.sendall(_HEAD.pack(kind, len(answer)) + answer)
        except OSError:
            pass  # the client has disconnected
        finally:
            self._open -= 1

    def _query(self, query: str) -> tuple[int, bytes]:
        with self._query_lock:
            try:
                return 0, bytes(self._session.query(query, "ArrowStream").bytes() or b"")
            except Exception as error:  # noqa: BLE001 - any error is returned to the client
                return 1, str(error).encode()

    def _leave(self) -> None:
        # Another host may have started in the meantime and written its own address; keep that one.
        address = self._directory / ADDRESS
        if address.exists() and json.loads(address.read_text()).get("pid") == os.getpid():
            address.unlink()
        self._listening.close()
        shutil.rmtree(self._private, ignore_errors=True)
        self._session.close()


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    Host(Path(sys.argv[1])).serve()


if __name__ == "__main__":
    main()
