"""Start the example: its own PostgreSQL server, the site, and a worker that is restarted if it dies.

python examples/django_site/run.py [--port 8000]
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from holdfast.embedded import ensure_running

HERE = Path(__file__).parent


def manage(*arguments: str) -> list[str]:
    return [sys.executable, str(HERE / "manage.py"), *arguments]


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--home", type=Path, default=Path(".holdfast"), help="where the database is kept")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with ExitStack() as stack:
        if "DATABASE_URL" not in os.environ:
            server = stack.enter_context(ensure_running(given.home))
            os.environ["DATABASE_URL"] = server.url
        subprocess.run(manage("migrate", "--verbosity=0"), check=True)
        address = f"127.0.0.1:{given.port}"
        site = subprocess.Popen(manage("runserver", "--noreload", address))
        stack.callback(stop, site)
        worker = subprocess.Popen(manage("holdfast_worker", "--no-reload"))
        stack.callback(lambda: stop(worker))
        print(f"http://{address}/ (Ctrl-C stops it)", flush=True)
        while site.poll() is None:
            if worker.poll() is not None:
                worker = subprocess.Popen(manage("holdfast_worker", "--no-reload"))
            time.sleep(0.5)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(0)
