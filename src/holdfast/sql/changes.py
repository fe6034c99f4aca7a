"""Change detection: a version text for each run or job, which changes whenever any of its public fields does."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.sql.statement import Statement, plain_array


def versions(ids: Sequence[str]) -> Statement[dict[str, str]]:
    """Return the version texts of the runs and jobs with these ids, by id; missing ones are left out."""
    return Statement(
        """
        select runs.id::text,
               row(ready.number, waiting.number, waiting.due_at, waiting.blockers, leases.number, leases.started_at,
                   leases.cancel_requested_at, leases.progress::text, workers.expires_at, ending.number,
                   (select max(logs.seq) from holdfast.logs where logs.run_id = runs.id),
                   (select count(*) from holdfast.events where events.run_id = runs.id))::text
        from unnest(%(ids)s::uuid[]) as given (id)
        join holdfast.runs on runs.id = given.id
        left join holdfast.ready on ready.run_id = runs.id
        left join holdfast.waiting on waiting.run_id = runs.id
        left join holdfast.leases on leases.run_id = runs.id
        left join holdfast.workers on workers.id = leases.worker_id
        left join holdfast.attempts as ending
               on ending.run_id = runs.id and ending.outcome is not null and ending.reopened_at is null
        union all
        select jobs.id::text,
               row(jobs.total, jobs.succeeded, jobs.failed, jobs.cancelled, jobs.started_at, jobs.finished_at,
                   jobs.deadline_at, jobs.cancel_requested_at)::text
        from holdfast.jobs where jobs.id = any(%(ids)s::uuid[])
        """,
        {"ids": plain_array(ids)},
        lambda found: {row[0]: row[1] for row in found},
    )
