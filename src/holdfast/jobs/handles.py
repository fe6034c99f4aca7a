"""The objects that the jobs API returns: jobs, their tasks, and maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, overload

from holdfast.domain.errors import BadInput, Problem
from holdfast.domain.ids import parse_id, slice_ids
from holdfast.domain.jobs import JobRecord
from holdfast.domain.states import Status
from holdfast.domain.values import RunRecord

LoadTasks = Callable[[str, str | None, int], list[RunRecord]]
LoadResult = Callable[[str], Any]

PAGE = 1000


class Identified:
    """Two handles of the same kind are equal if they have the same id."""

    id: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)


class JobTask(Identified):
    """A task of a job: a run with the field names of the jobs API."""

    def __init__(self, record: RunRecord, load_result: LoadResult) -> None:
        self.record = record
        self._load_result = load_result
        self.id = record.id
        self.job_id = record.job_id
        self.key = record.child_key
        self.entrypoint = record.task
        self.kwargs = record.parameters
        self.status: Status = record.status
        self.error_message = record.last_error
        failed = record.status is Status.FAILED
        self.reason = record.last_error or record.reason if failed else record.reason
        self.retry_count = max(record.attempt_count - 1, 0)
        self.max_retries = record.max_attempts - 1
        self.worker_id = record.worker_id or record.lease_owner
        self.created_at = record.created_at
        self.started_at = record.started_at
        self.completed_at = record.finished_at

    def result(self) -> Any:
        """Return the task's result. Raises RunNotFinished, RunFailed or RunCancelled if there is none."""
        return self._load_result(self.id)

    def __repr__(self) -> str:
        return f"<JobTask {self.key or self.id} {self.entrypoint} {self.status}>"


class Tasks(Sequence[JobTask]):
    """The tasks of a job, loaded when accessed: those created with the job first, in the given order."""

    def __init__(self, job_id: str, total: int, load: LoadTasks, load_result: LoadResult) -> None:
        self._job_id = job_id
        self._total = total
        self._load = load
        self._load_result = load_result
        self._known: list[JobTask] = []
        self._complete = False

    def __len__(self) -> int:
        return self._total

    @overload
    def __getitem__(self, index: int) -> JobTask: ...

    @overload
    def __getitem__(self, index: slice) -> list[JobTask]: ...

    def __getitem__(self, index: int | slice) -> JobTask | list[JobTask]:
        wanted = range(self._total)[index]
        if isinstance(wanted, int):
            self._read_up_to(wanted)
            return self._known[wanted]
        if wanted:
            self._read_up_to(max(wanted))
        return [self._known[one] for one in wanted]

    def _read_up_to(self, index: int) -> None:
        while len(self._known) <= index and not self._complete:
            after = self._known[-1].id if self._known else None
            page = self._load(self._job_id, after, PAGE)
            self._known += [JobTask(record, self._load_result) for record in page]
            self._complete = len(page) < PAGE


class Job(Identified):
    """A job as it was when it was read. `tasks` are loaded when they are accessed."""

    def __init__(self, record: JobRecord, load: LoadTasks, load_result: LoadResult) -> None:
        self.record = record
        self.id = record.id
        self.name = record.name
        self.description = record.description
        self.status: Status = record.status
        self.reason = record.reason
        self.created_at: datetime = record.created_at
        self.started_at = record.started_at
        self.completed_at = self.finished_at = record.finished_at
        self.deadline_at = record.deadline_at
        self.total_tasks = record.total
        self.completed_tasks = record.succeeded
        self.failed_tasks = record.failed
        self.cancelled_tasks = record.cancelled
        self.tasks = Tasks(record.id, record.total, load, load_result)

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.name} {self.status} {self.completed_tasks}/{self.total_tasks}>"


@dataclass(frozen=True, slots=True)
class MapHandle:
    """A map, for `collect` and `depends_on`. Its `reference()` can be used in parameters and results."""

    id: str
    job_id: str
    total: int
    entrypoint: str

    @property
    def task_ids(self) -> list[str]:
        """Return the ids of its tasks, in the order of the slices."""
        return slice_ids(self.id, self.total)

    def __len__(self) -> int:
        return self.total

    def reference(self) -> dict[str, Any]:
        """Return the handle as JSON."""
        return {"$map": {"id": self.id, "job_id": self.job_id, "total": self.total, "entrypoint": self.entrypoint}}

    @classmethod
    def of(cls, value: Any) -> MapHandle:
        """Return the handle for a handle or for a reference to one."""
        if isinstance(value, MapHandle):
            return value
        match value:
            case {"$map": {"id": str(id_), "job_id": str(job_id), "total": int(total), "entrypoint": str(entrypoint)}}:
                if parse_id(id_) and parse_id(job_id):
                    return cls(id_, job_id, total, entrypoint)
        raise BadInput(
            f"collect takes the handle that map returned, or a reference to it, not {value!r}",
            [Problem("/handle", "not a map")],
        )
