-- A worker among others: it claims only tasks that it knows, never waits for a lock that a user's transaction holds, and
-- gives a claim that it did not begin back without a trace.

-- The ready runs of a queue are kept apart by task, so that a claim reads only those of the tasks that its worker knows.
-- Code of the previous version leaves the task empty; `ready.name_tasks` fills it in.
alter table holdfast.ready add column task text not null default '';
alter table holdfast.waiting add column task text not null default '';

alter table holdfast.ready disable trigger ready_never_changes;
update holdfast.ready set task = runs.task from holdfast.runs where runs.id = ready.run_id;
alter table holdfast.ready enable trigger ready_never_changes;
update holdfast.waiting set task = runs.task from holdfast.runs where runs.id = waiting.run_id;

create unique index ready_by_task on holdfast.ready (queue, task, ord, rank_at, run_id);
create index ready_unnamed on holdfast.ready (run_id) where task = '';
drop index holdfast.ready_order;


-- A worker that has settled everything it was given says so as it leaves: what it still holds then was never begun.
alter table holdfast.workers add column settled_at timestamptz;


-- A job starts with the first claim of one of its runs. A claim does not wait for a job that another transaction holds:
-- it leaves a note, and an upkeep service starts the job as soon as it can be had.
create table holdfast.late_starts (
    job_id          uuid not null,
    at              timestamptz not null
);

create or replace function holdfast.start_jobs() returns trigger language plpgsql
    set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    ids uuid[] := array(select distinct job_id from arrived where job_id is not null);
begin
    if ids <> '{}' then
        with held as (
            select id from holdfast.jobs where id = any (ids) and started_at is null
            order by id for no key update skip locked
        ), started as (
            update holdfast.jobs set started_at = holdfast.now() from held
            where jobs.id = held.id and jobs.started_at is null
        )
        insert into holdfast.late_starts (job_id, at)
        select jobs.id, holdfast.now() from holdfast.jobs
        where jobs.id = any (ids) and jobs.started_at is null and jobs.id not in (select id from held);
    end if;
    return null;
end $$;


-- A lease is written only for a worker that is there at that moment, however long the statement took to get so far.
create or replace function holdfast.guard_lease() returns trigger language plpgsql
    set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    ids uuid[] := array(select run_id from arrived order by run_id);
    lowest uuid := ids[1];
    highest uuid := ids[cardinality(ids)];
    offender uuid;
begin
    if ids = '{}' then
        return null;
    end if;
    select n.run_id into offender from (select distinct on (worker_id) worker_id, run_id from arrived) as n
    where not exists (select from holdfast.workers w
                      where w.id = n.worker_id and w.stopped_at is null
                        and w.expires_at > holdfast.now() + (clock_timestamp() - statement_timestamp())) limit 1;
    if found then
        perform holdfast.refuse_run(offender, 'lease a run to a worker that is not there');
    end if;
    select queued.run_id into offender from (
        (select r.run_id from holdfast.ready r where r.run_id = any (ids) limit 1)
        union all
        (select w.run_id from holdfast.waiting w where w.run_id = any (ids) limit 1)) as queued limit 1;
    if not found then
        perform from arrived where number > 1 limit 1;
        if not found then
            perform from holdfast.attempts a
            where a.run_id between lowest and highest and a.run_id = any (ids) limit 1;
        end if;
        if found then
            select n.run_id into offender from arrived n
            cross join lateral (
                select from holdfast.attempts a
                where a.run_id = n.run_id
                  and (a.number >= n.number or (a.outcome is not null and a.reopened_at is null)) limit 1) as past
            limit 1;
            if not found then
                select n.run_id into offender from arrived n
                where n.number > 1 and not exists (select from holdfast.attempts a
                                                   where a.run_id = n.run_id and a.number = n.number - 1) limit 1;
            end if;
        end if;
    end if;
    if found then
        perform holdfast.refuse_run(offender, 'lease a run that is still queued, has ended, or is not at this attempt');
    end if;
    return null;
end $$;

-- A lease leaves with the end of its attempt, or, if the attempt was never begun, with the run back in its queue under the
-- same number.
create or replace function holdfast.guard_lease_left() returns trigger language plpgsql
    set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    ids uuid[];
    numbers integer[];
    offender uuid;
begin
    select array_agg(run_id order by run_id), array_agg(number order by run_id) into ids, numbers from departed;
    if numbers is distinct from (select array_agg(a.number order by a.run_id) from holdfast.attempts a
                                 where a.run_id between ids[1] and ids[cardinality(ids)] and a.run_id = any (ids)
                                   and a.outcome is not null and a.reopened_at is null) then
        select o.run_id into offender from departed o
        left join holdfast.attempts a on a.run_id = o.run_id and a.number = o.number
        where (a.run_id is null
               and not exists (select from holdfast.ready r where r.run_id = o.run_id and r.number = o.number))
           or (a.run_id is not null and a.outcome is null
               and not exists (select from holdfast.ready r where r.run_id = o.run_id and r.number = o.number + 1)
               and not exists (select from holdfast.waiting w where w.run_id = o.run_id and w.number = o.number + 1))
        limit 1;
        if found then
            perform holdfast.refuse_run(offender, 'drop a lease without ending its attempt and placing its run');
        end if;
    end if;
    return null;
end $$;


-- A stored policy that this version cannot read must not keep a run from being read.
create or replace view holdfast.run_status as
select runs.id, runs.task, runs.queue, runs.priority, runs.parameters, encode(runs.payload_hash, 'hex') as payload_hash,
       runs.created_at, runs.run_after, runs.job_id, runs.parent_id, runs.child_key, runs.concurrency_key,
       runs.submitted_by, runs.traceparent, runs.tags,
       case when leases.run_id is not null then 'RUNNING'
            when ready.run_id is not null or waiting.run_id is not null then 'PENDING'
            else ending.outcome end as status,
       coalesce(waiting.due_at, ready.rank_at) as due_at,
       coalesce((select attempts.started_at from holdfast.attempts where attempts.run_id = runs.id and attempts.number = 1),
                leases.claimed_at) as started_at,
       ending.finished_at,
       coalesce(leases.number, ready.number - 1, waiting.number - 1, latest.number, 0) as attempt_count,
       case when runs.policy ->> 'max_attempts' ~ '^[1-9][0-9]{0,8}$' then (runs.policy ->> 'max_attempts')::integer
            else 3 end as max_attempts,
       coalesce(leases.cancel_reason, waiting.reason, ending.reason) as reason,
       coalesce(leases.progress, latest.progress) as progress,
       latest.error, ending.result_ref, ending.result_size, ending.result_sha256,
       leases.worker_id as lease_owner, workers.expires_at as lease_expires_at, workers.heartbeat_at,
       leases.cancel_requested_at
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


-- The guards switch planner methods off, so every plan in them looks astronomically expensive, and a server with its
-- default settings would compile it. Callers' own connections (`client.on`) keep their settings, so the functions say it
-- themselves.
alter function holdfast.guard_pending() set jit = off;
alter function holdfast.guard_attempt() set jit = off;
alter function holdfast.guard_pending_left() set jit = off;
