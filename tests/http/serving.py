"""Starts the shipped server and prints its URL, or the reason why it does not start."""

from __future__ import annotations

import sys

from holdfast.domain.errors import HoldfastError
from holdfast.http.server import serve
from holdfast.runtime.settings import load

if __name__ == "__main__":
    processes = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    if len(sys.argv) > 2:
        # Only here: metrics of several processes need the server to choose their directory before this is imported.
        from holdfast.http import worker

        worker.HEAD_SECONDS = worker.BODY_SECONDS = worker.SEND_SECONDS = int(sys.argv[2])
    try:
        serve(load(), processes=processes, started=lambda url: print(url, flush=True))
    except HoldfastError as error:
        print(f"refused: {error}", flush=True)
        sys.exit(1)
