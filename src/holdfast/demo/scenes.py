"""What the demo shows and checks. The docstring of each scene is its title and introduction."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from holdfast.client.verifying import verify
from holdfast.demo.place import LEASE_SECONDS
from holdfast.demo.stage import Stage
from holdfast.domain.errors import KeyReused
from holdfast.domain.states import Status
from holdfast.jobs import Jobs
from holdfast.tasks.forecast import REGIONS, SCENARIOS

# Seconds from the kill until the other worker has the run.
TAKEN_OVER_WITHIN = LEASE_SECONDS + 6.0


def forecast(stage: Stage) -> None:
    """A run that succeeds.
    A three-year forecast by Monte Carlo simulation, submitted as any program would submit it.
    """
    client, narrator = stage.client, stage.narrator
    run = client.submit(
        "baseline_forecast_v1",
        {"scenario": "high_inflation", "horizon_months": 36, "region": "AU", "paths": 200_000},
        tags=["demo"],
    )
    run = stage.until(run, lambda run: run.status.final)
    because = f": {run.last_error}" if run.last_error else ""
    narrator.check(run.status is Status.SUCCEEDED, f"run {run.id} succeeded{because}")
    if run.status is Status.SUCCEEDED:
        result = client.result(run)
        narrator.say(_summary(result))
        narrator.check(client.result(run) == result, "its result is stored and reads back unchanged")


def _summary(result: dict[str, Any]) -> str:
    end = result["terminal"]
    return (
        f"the median moves from 100 to {end['p50']:.1f}; nine of ten cases end between {end['p05']:.1f} and "
        f"{end['p95']:.1f}; the probability of a decline is {result['probability_of_decline']:.0%}"
    )


def failure(stage: Stage) -> None:
    """A run that fails once and is retried, and a request that is sent twice.
    The mock model is set to fail its first attempt. The run then waits in the database, not in a worker.
    """
    client, narrator = stage.client, stage.narrator
    failing = client.submit("mock", {"seconds": 0.6, "steps": 6, "fail_times": 1}, tags=["demo"])
    failing = stage.until(
        failing, lambda run: run.status is Status.PENDING and run.attempt_count == 1, name="the failing run"
    )
    narrator.check(True, f"attempt 1 failed as requested: {failing.last_error}")
    narrator.say("attempt 2 starts in 5 s; meanwhile, one request is sent twice")
    _same_request_twice(stage)
    failing = stage.until(failing, lambda run: run.status.final, name="the failing run")
    attempts = [attempt.status for attempt in client.attempts(failing)]
    narrator.check(attempts == ["FAILED", "SUCCEEDED"], f"attempts of run {failing.id}: {', '.join(attempts)}")


def _same_request_twice(stage: Stage) -> None:
    client, narrator = stage.client, stage.narrator
    parameters = {"seconds": 0.3, "steps": 3}
    first = client.submit("mock", parameters, key="report-42", tags=["demo"])
    second = client.submit("mock", parameters, key="report-42", tags=["demo"])
    narrator.check(
        first.id == second.id and first.created and not second.created,
        f"key report-42, sent twice: both responses name run {first.id}",
    )
    try:
        client.submit("mock", parameters | {"seconds": 9}, key="report-42")
    except KeyReused as refusal:
        narrator.check("/parameters/seconds" in refusal.fields, f"a different payload is rejected: {refusal.fields[0]}")
    else:
        narrator.check(False, "a different payload with the same key is rejected")
    stage.until(first, lambda run: run.status.final, name="the run of report-42")
    made = [run for run in client.list(tag="demo") if run.model == "mock" and run.parameters == parameters]
    narrator.check(len(made) == 1 and made[0].attempt_count == 1, "there is one such run, and it was executed once")


def fan_out(stage: Stage) -> None:
    """A job that fans out.
    Every scenario in every region: one run per slice of the list, and one that ranks the results after all have ended.
    """
    client, narrator = stage.client, stage.narrator
    jobs = Jobs(stage.database)
    rows = [{"scenario": scenario, "region": region} for scenario in SCENARIOS for region in REGIONS]
    handle = jobs.map("demo_outlooks", rows, chunk_size=3, months=12, paths=20_000)
    ranking = jobs.collect(handle, into="demo_ranking")
    job = stage.until_ended(jobs, handle.job_id)
    narrator.check(
        job.status is Status.SUCCEEDED and job.completed_tasks == len(handle) + 1,
        f"{job.completed_tasks} of {job.total_tasks} runs of job {job.id} succeeded",
    )
    result = client.result(ranking.id)
    narrator.check(result["counted"] == len(rows), f"each of the {len(rows)} combinations is counted once")
    attempts = client.attempts(ranking.id)
    others = [run.finished_at for run in stage.database.list(job_id=job.id) if run.id != ranking.id]
    narrator.check(
        len(attempts) == 1 and all(ended and attempts[0].claimed_at >= ended for ended in others),
        "the ranking ran once, after all the others had ended",
    )
    best, worst = result["best"], result["worst"]
    narrator.say(
        f"after a year, {best['scenario']} in {best['region']} ranks highest at {best['median']:.1f}, "
        f"{worst['scenario']} in {worst['region']} lowest at {worst['median']:.1f}"
    )


def killed(stage: Stage) -> None:
    """A worker that is killed halfway through a run.
    kill -9 ends a worker and its child processes. The lease expires, and the other worker executes the run.
    """
    client, narrator = stage.client, stage.narrator
    run = client.submit("mock", {"seconds": 3, "steps": 30}, tags=["demo"])
    run = stage.until(run, lambda run: (run.progress or {}).get("done", 0) >= 15)
    victim = stage.worker_of(run)
    members = victim.kill()
    at = time.monotonic()
    narrator.say(
        f"worker {victim.name} was killed with kill -9: {len(members)} processes are gone, but the lease remains"
    )
    run = stage.until(run, lambda run: run.attempt_count == 2, TAKEN_OVER_WITHIN + 10)
    took = time.monotonic() - at
    narrator.check(took <= TAKEN_OVER_WITHIN, f"the other worker took over the run {took:.1f} s after the kill")
    run = stage.until(run, lambda run: run.status.final)
    attempts = client.attempts(run)
    statuses = [attempt.status for attempt in attempts]
    narrator.check(statuses == ["LOST", "SUCCEEDED"], f"attempts: {', '.join(statuses)}")
    narrator.check(len({attempt.worker_id for attempt in attempts}) == 2, "the second attempt ran on the other worker")
    narrator.events(client.events(run))
    narrator.check(
        all(check.holds for check in verify(stage.database, run.id)), "the whole record of the run is consistent"
    )


SCENES: tuple[Callable[[Stage], None], ...] = (forecast, failure, fan_out, killed)
