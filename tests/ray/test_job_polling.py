"""How often the executor of jobs asks Ray about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.domain.execution import Ended, TakenOver
from holdfast.domain.settling import Failed
from holdfast.domain.values import AttemptRef
from holdfast.executors.ray_job import RayJobExecutor, _Job
from holdfast.executors.ray_jobs_api import RayJobs, RayRefused
from holdfast.executors.ray_reconciler import submission_id
from tests.ray.actors import claim_of, context_of


class Listing(RayJobs):
    """A job server that knows these jobs, all of them running."""

    def __init__(self, ids: Sequence[str]) -> None:
        super().__init__("http://127.0.0.1:1")
        self.ids = ids
        self.requests: list[str] = []

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        self.requests.append(path)
        if path == "/api/jobs/":
            return [{"submission_id": id_, "status": "RUNNING"} for id_ in self.ids]
        if path.rpartition("/")[2] in self.ids:
            return {"status": "RUNNING"}
        raise RayRefused("Ray responded with 404", 404)


class Holding:
    """Attempt services of a worker that holds these attempts."""

    def __init__(self, refs: set[AttemptRef]) -> None:
        self._refs = refs

    async def still_held(self, refs: Sequence[AttemptRef]) -> set[AttemptRef]:
        return self._refs & set(refs)


def executor_of(names: Sequence[str], known: Sequence[str], held: Sequence[str], reported: list[Ended]) -> Any:
    """An executor that submitted these jobs; Ray knows some of them, and the worker holds the runs of some."""
    jobs = [_Job(claim_of(name), "worker", submitted_at=0.0) for name in names]
    ray = Listing([submission_id(AttemptRef(name, 1), "worker") for name in known])
    executor: Any = RayJobExecutor(10, ray, {})
    services: Any = Holding({AttemptRef(name, 1) for name in held})
    executor._context = context_of(reported)._replace(attempt_services=services)
    executor._jobs = {job.claim.ref: job for job in jobs}
    return executor, jobs, ray


async def test_several_jobs_are_looked_at_with_one_request() -> None:
    reported: list[Ended] = []
    executor, jobs, ray = executor_of("abc", known="abc", held="", reported=reported)
    await executor._check_jobs(jobs)
    assert ray.requests == ["/api/jobs/"]
    assert [one.outcome for one in reported] == [TakenOver()] * 3


async def test_a_single_job_is_looked_at_without_a_list_of_all_jobs() -> None:
    executor, jobs, ray = executor_of("a", known="a", held="", reported=[])
    await executor._check_jobs(jobs)
    assert ray.requests == [f"/api/jobs/{jobs[0].id}"]


async def test_a_job_that_the_list_lacks_is_lost_only_if_ray_does_not_know_it_either() -> None:
    reported: list[Ended] = []
    executor, jobs, ray = executor_of("abc", known="ab", held="c", reported=reported)
    await executor._check_jobs(jobs)
    assert ray.requests == ["/api/jobs/", f"/api/jobs/{jobs[2].id}"]
    lost = [one.outcome for one in reported if isinstance(one.outcome, Failed)]
    assert [one.error["class"] for one in lost] == ["RayJobLost"]
