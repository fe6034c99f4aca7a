"""POST /runs with keys, against a bare Flask view that does one INSERT and COMMIT: same process, same pool, same load.

    python -m bench.http_throughput [ROUNDS] [REQUESTS] [CONNECTIONS]

The two take turns; the figure is the median of the ratios of neighbouring rounds. Runs on HOLDFAST_DATABASE_URL if that
is set (it is upgraded, and filled with runs), else on an embedded server of its own, with fsync on.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import orjson
import psycopg

from holdfast.embedded import ensure_running
from holdfast.runtime.settings import load
from holdfast.schema.migrate import upgrade

BARE = "/bare"


def bare_app(service: Any) -> Callable[..., Iterable[bytes]]:
    """The comparison: a view that reads JSON, inserts one row and commits, and answers with its id."""
    from uuid import uuid4

    from flask import Flask, jsonify, request

    app = Flask("bare")

    @app.post(BARE)
    def insert() -> Any:
        body = request.get_json()
        made = str(uuid4())
        with service.database.pool.connection() as connection:
            connection.execute(
                "insert into public.bare_runs (id, model, parameters, key) values (%s, %s, %s, %s)",
                [made, body["model"], orjson.dumps(body["parameters"]).decode(), request.headers["Idempotency-Key"]],
            )
        return jsonify(id=made, status="PENDING"), 201

    return app


def serve(port: Any) -> None:
    from dataclasses import replace

    from holdfast.http import app as application
    from holdfast.http import server
    from holdfast.http.service import EXTENSION

    def both(settings: Any) -> Any:
        api = application.make(settings)
        bare = bare_app(api.extensions[EXTENSION])
        inner = api.wsgi_app
        api.wsgi_app = lambda environ, start: (bare if environ["PATH_INFO"] == BARE else inner)(environ, start)
        return api

    server.create_app = both
    settings = replace(load(), port=0)
    listener = server.listen(settings.host, 0)
    port.send(server.url_of(listener))
    server.serve(settings, listener=listener)


def processor_seconds(pid: int) -> float:
    """The processor time of a process and its children so far: steadier than a rate on a machine that others use."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + sum(
        processor_seconds(int(child)) for child in children
    )


def measure(server: int, url: str, path: str, requests: int, connections: int, run: str) -> dict[str, Any]:
    before = processor_seconds(server)
    said = subprocess.run(
        [sys.executable, "-m", "bench.http_load", url, path, str(connections), str(requests), run],
        check=True,
        capture_output=True,
    ).stdout
    outcome: dict[str, Any] = orjson.loads(said)
    assert set(outcome["statuses"]) == {"201"}, outcome
    outcome["processor"] = (processor_seconds(server) - before) / requests
    return outcome


def main() -> None:
    rounds, requests, connections = ([int(word) for word in sys.argv[1:]] + [7, 3000, 16][len(sys.argv) - 1 :])[:3]
    given = load().database_url
    with tempfile.TemporaryDirectory(prefix="holdfast-http-") as directory, ExitStack() as stack:
        Path(directory).chmod(0o711)
        url = given or stack.enter_context(ensure_running(Path(directory) / "home")).url
        os.environ["HOLDFAST_DATABASE_URL"] = url
        os.environ["HOLDFAST_ARTIFACTS"] = directory
        compare(url, rounds, requests, connections)


def compare(url: str, rounds: int, requests: int, connections: int) -> None:
    upgrade(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "create table if not exists public.bare_runs (id uuid primary key, model text not null,"
            " parameters json not null, key text not null, created_at timestamptz not null default now())"
        )
        connection.execute("truncate public.bare_runs")
    ours, theirs = multiprocessing.get_context("spawn").Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,))
    process.start()
    try:
        base = ours.recv()
        for path in ("/runs", BARE):
            measure(process.pid, base, path, 300, connections, f"warm-{os.getpid()}")
        ratios, spent = [], []
        for number in range(rounds):
            order = ("/runs", BARE) if number % 2 else (BARE, "/runs")
            found = {
                path: measure(process.pid, base, path, requests, connections, f"{os.getpid()}-{number}")
                for path in order
            }
            ratios.append(found["/runs"]["rate"] / found[BARE]["rate"])
            shown = "   ".join(
                f"{path} {one['rate']:6.0f}/s (p99 {one['p99'] * 1000:.0f} ms, server {one['processor'] * 1e6:.0f} us)"
                for path, one in sorted(found.items())
            )
            spent.append(found[BARE]["processor"] / found["/runs"]["processor"])
            print(f"round {number + 1}: {shown}   ratio {ratios[-1]:.2f}", flush=True)
        print(f"median ratio {median(ratios):.2f} (goal 0.70); of the server's processor time {median(spent):.2f}")
    finally:
        process.terminate()
        process.join()


if __name__ == "__main__":
    main()
