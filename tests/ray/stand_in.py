"""A stand-in for Ray's job server: the same HTTP interface, jobs as processes of this machine.

It starts in milliseconds and does what Ray does for a job: start the entrypoint in a shell, report its status and exit
code, and stop its process group. Jobs can be held back or forgotten, as after a restart of the head, and the server can
stop responding.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from holdfast.executors.ray_jobs_api import RayJobs
from tests.ray.head import ROOT, kill_session, outer_environment, path_of_this_python, session_of

KILL_AFTER = 1.0
TOKEN = "token-of-the-stand-in"


class StandIn:
    """A job server on loopback. `holding` keeps new jobs PENDING until `release`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
        self._given = {**outer_environment(), **self.token, **environment}
        self._given |= {"PATH": path_of_this_python(), "PYTHONPATH": str(ROOT)}
        self._jobs: dict[str, dict[str, Any]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self.holding = False
        self.submissions: list[dict[str, Any]] = []
        self.stops: list[str] = []
        self._logs = Path(tempfile.mkdtemp(prefix="hfs"))
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(*stand_in.get(self.path) if self._known() else (401, "no token"))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = json.loads(body) if body else {}
                self._answer(*stand_in.post(self.path, request) if self._known() else (401, "no token"))

            def _known(self) -> bool:
                return self.headers.get("Authorization") == f"Bearer {TOKEN}"

            def _answer(self, status: int, said: Any) -> None:
                data = (said if isinstance(said, str) else json.dumps(said)).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.gcs_address = "127.0.0.1:1"
        self.jobs = RayJobs(self.address)

    def get(self, path: str) -> tuple[int, Any]:
        if path == "/api/version":
            return 200, {"ray_version": "stand-in"}
        _, _, _, submission_id, *rest = path.split("/")
        if not submission_id:
            return 200, [{"submission_id": id_, **self.get(path + id_)[1]} for id_ in list(self._jobs)]
        with self._lock:
            job = self._jobs.get(submission_id)
            if job is None:
                return 404, f"Job {submission_id} does not exist"
            if rest == ["logs"]:
                return 200, {"logs": self._log(submission_id).read_text("utf-8") if job["status"] != "PENDING" else ""}
            process = self._processes.get(submission_id)
            if process is not None and process.poll() is not None and job["status"] == "RUNNING":
                job["driver_exit_code"] = process.returncode
                job["status"] = "SUCCEEDED" if process.returncode == 0 else "FAILED"
            return 200, dict(job)

    def post(self, path: str, request: dict[str, Any]) -> tuple[int, Any]:
        with self._lock:
            if path.endswith("/stop"):
                submission_id = path.split("/")[3]
                process = self._processes.get(submission_id)
                self.stops.append(submission_id)
                if process is not None and process.poll() is None:
                    os.killpg(process.pid, signal.SIGTERM)
                    threading.Timer(KILL_AFTER, kill_session, [process]).start()
                return 200, {"stopped": True}
            submission_id = request["submission_id"]
            if submission_id in self._jobs:
                return 500, f"Job with submission_id {submission_id} already exists."
            self.submissions.append(request)
            self._jobs[submission_id] = {"status": "PENDING", "entrypoint": request["entrypoint"]}
            if not self.holding:
                self._begin(submission_id)
            return 200, {"submission_id": submission_id}

    def _begin(self, submission_id: str) -> None:
        job = self._jobs[submission_id]
        job["status"] = "RUNNING"
        with self._log(submission_id).open("wb") as log:
            self._processes[submission_id] = subprocess.Popen(
                job["entrypoint"],
                shell=True,
                env=self._given,
                cwd=ROOT,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _log(self, submission_id: str) -> Path:
        return self._logs / submission_id

    def freeze_jobs(self) -> list[subprocess.Popen[bytes]]:
        """Suspend the processes of all jobs."""
        for process in self._processes.values():
            for member in session_of(process.pid):
                os.kill(member, signal.SIGSTOP)
        return list(self._processes.values())

    def release(self) -> None:
        """Start the jobs that were held back."""
        with self._lock:
            self.holding = False
            for submission_id, job in self._jobs.items():
                if job["status"] == "PENDING":
                    self._begin(submission_id)

    def forget(self) -> None:
        """Forget all jobs, as after a restart of the head."""
        with self._lock:
            self._jobs.clear()

    def kill_jobs(self) -> None:
        """End the processes of all jobs, as the death of their node does."""
        for process in self._processes.values():
            kill_session(process)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.kill_jobs()
        shutil.rmtree(self._logs, ignore_errors=True)
