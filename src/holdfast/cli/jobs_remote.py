"""Jobs over HTTP: what `holdfast jobs` asks, with the names of `holdfast.jobs.Jobs`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.client import Client
from holdfast.client.calls import run_id
from holdfast.domain.jobs import JobRecord
from holdfast.domain.states import Status
from holdfast.domain.values import RunRecord
from holdfast.jobs import Job, Jobs
from holdfast.jobs.calls import job_id_of, status_of

if TYPE_CHECKING:
    from holdfast.http_client import HttpClient

PAGE = 200


def jobs_of(client: Any) -> Jobs | ApiJobs:
    """The jobs that a client knows, of the database or of an API."""
    return Jobs(client) if isinstance(client, Client) else ApiJobs(client)


class ApiJobs:
    """The jobs of an API."""

    def __init__(self, client: HttpClient) -> None:
        self.client = client

    def list_jobs(
        self, status: str | None = None, *, name: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> list[Job]:
        asked = {"status": status_of(status), "name": name, "cursor": cursor and job_id_of(cursor), "limit": limit}
        return [self._job(told) for told in self._ask("GET", "/jobs", asked)["items"]]

    def get_job(self, job: object) -> Job:
        return self._job(self._ask("GET", f"/jobs/{job_id_of(job)}"))

    def cancel_job(self, job: object, *, reason: str | None = None) -> Job:
        body = None if reason is None else {"reason": reason}
        return self._job(self._ask("POST", f"/jobs/{job_id_of(job)}/cancel", body=body))

    def retry_failed_tasks(self, job: object) -> int:
        # Asked once: what was reopened may have failed again before a second request, which would reopen it once more.
        told = self._ask("POST", f"/jobs/{job_id_of(job)}/retry", repeatable=False)
        return int(told["reopened"])

    def load_tasks(self, job_id: str, after: str | None, limit: int) -> list[RunRecord]:
        from holdfast.documents import reading as records

        found: list[RunRecord] = []
        while len(found) < limit:
            page = self._ask("GET", f"/jobs/{job_id}/tasks", {"cursor": after, "limit": min(PAGE, limit - len(found))})
            found += [records.run(told) for told in page["items"]]
            after = page["next_cursor"]
            if after is None:
                break
        return found

    def load_result(self, task_id: str) -> Any:
        return self.client.result(run_id(task_id))

    def _job(self, told: dict[str, Any]) -> Job:
        return Job(_record(told), self.load_tasks, self.load_result)

    def _ask(
        self,
        method: str,
        path: str,
        query: dict[str, Any] | None = None,
        body: dict[str, str] | None = None,
        *,
        repeatable: bool = True,
    ) -> dict[str, Any]:
        import json

        from holdfast.http_client.asks import Ask

        given = {name: str(value) for name, value in (query or {}).items() if value is not None}
        content = None if body is None else json.dumps(body).encode()
        told: dict[str, Any] = self.client.perform(
            Ask(method, path, lambda reply: reply.json(), given, body=content, repeatable=repeatable)
        )
        return told


def _record(told: dict[str, Any]) -> JobRecord:
    """A job as the API tells it. What it does not tell, `broken` and `first_tasks`, nobody here asks for."""

    def at(name: str) -> datetime | None:
        return datetime.fromisoformat(told[name]) if told[name] is not None else None

    return JobRecord(
        id=told["job_id"],
        name=told["name"],
        status=Status(told["status"]),
        description=told["description"],
        created_at=datetime.fromisoformat(told["created_at"]),
        started_at=at("started_at"),
        finished_at=at("finished_at"),
        deadline_at=at("deadline_at"),
        cancel_requested_at=at("cancel_requested_at"),
        reason=told["reason"],
        total=told["total_tasks"],
        succeeded=told["completed_tasks"],
        failed=told["failed_tasks"],
        cancelled=told["cancelled_tasks"],
        broken=0,
        first_tasks=0,
        submitted_by=told["submitted_by"],
    )
