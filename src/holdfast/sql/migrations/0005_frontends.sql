-- What lists are answered from: the runs of a queue and of a task, newest first. Bytes are compared, not letters, which
-- costs a submit a third less. Tags are looked up in a set, because a run has several; runs without tags pay nothing.

create index runs_of_queue on holdfast.runs (queue collate "C", id);
create index runs_of_task on holdfast.runs (task collate "C", id);
create index runs_of_tag on holdfast.runs using gin (tags) where tags is not null;


-- Postgres knows times that others do not: infinity, and years before 1 and after 9999. A row that has one, however it
-- came to be, must not keep a page of other rows from being read.

create function holdfast.readable(at timestamptz) returns timestamptz
    language sql immutable parallel safe
    return case when at > timestamptz '9998-12-31 00:00:00+00' then timestamptz '9998-12-31 00:00:00+00'
                when at < timestamptz '0002-01-01 00:00:00+00' then timestamptz '0002-01-01 00:00:00+00'
                else at end;

create or replace view holdfast.run_status as
select runs.id, runs.task, runs.queue, runs.priority, runs.parameters, encode(runs.payload_hash, 'hex') as payload_hash,
       holdfast.readable(runs.created_at) as created_at, holdfast.readable(runs.run_after) as run_after,
       runs.job_id, runs.parent_id, runs.child_key, runs.concurrency_key,
       runs.submitted_by, runs.traceparent, runs.tags,
       case when leases.run_id is not null then 'RUNNING'
            when ready.run_id is not null or waiting.run_id is not null then 'PENDING'
            else ending.outcome end as status,
       holdfast.readable(coalesce(waiting.due_at, ready.rank_at)) as due_at,
       coalesce((select holdfast.readable(attempts.started_at) from holdfast.attempts
                 where attempts.run_id = runs.id and attempts.number = 1),
                holdfast.readable(leases.claimed_at)) as started_at,
       holdfast.readable(ending.finished_at) as finished_at,
       coalesce(leases.number, ready.number - 1, waiting.number - 1, latest.number, 0) as attempt_count,
       coalesce(case when runs.policy ->> 'max_attempts' ~ '^[0-9]{1,9}$' then (runs.policy ->> 'max_attempts')::integer end,
                3) as max_attempts,
       coalesce(leases.cancel_reason, waiting.reason, ending.reason) as reason,
       coalesce(leases.progress, latest.progress) as progress,
       latest.error, ending.result_ref, ending.result_size, ending.result_sha256,
       leases.worker_id as lease_owner, holdfast.readable(workers.expires_at) as lease_expires_at,
       holdfast.readable(workers.heartbeat_at) as heartbeat_at,
       holdfast.readable(leases.cancel_requested_at) as cancel_requested_at
from holdfast.runs
left join holdfast.ready on ready.run_id = runs.id
left join holdfast.waiting on waiting.run_id = runs.id
left join holdfast.leases on leases.run_id = runs.id
left join holdfast.workers on workers.id = leases.worker_id
left join holdfast.attempts as ending
       on ending.run_id = runs.id and ending.outcome is not null and ending.reopened_at is null
left join lateral (
    select attempts.number, attempts.error, attempts.progress from holdfast.attempts
    where attempts.run_id = runs.id and attempts.number >= 1
    order by attempts.number desc limit 1) as latest on true;
