-- Jobs: named sets of runs that end together and may grow while they run.
--
--   jobs           what was asked, and counters that move in the transaction that makes them true
--   maps           one row for all the runs made of one dataset; what waits for them waits for this row
--   dependencies   who waits for whom; never changed: whether an edge is open is read off the run or map it points to
--   resources      what has to be removed when its job has ended
--
-- The runs of a job have ids with the job's own milliseconds, so they lie together: a range of the primary key is the
-- job, and no index by job is needed.

create table holdfast.jobs (
    id              uuid not null primary key,
    created_at      timestamptz not null,
    started_at      timestamptz,
    finished_at     timestamptz,
    deadline_at     timestamptz,
    held_until      timestamptz,            -- it does not end before, for its maker may be about to add the join
    cancel_requested_at timestamptz,
    timeout         interval check (timeout > interval '0'),
    total           integer not null default 0,
    succeeded       integer not null default 0 check (succeeded >= 0),
    failed          integer not null default 0 check (failed >= 0),
    cancelled       integer not null default 0 check (cancelled >= 0),
    broken          integer not null default 0 check (broken >= 0),    -- critical runs that failed or were cancelled
    first_tasks     integer not null default 0,                        -- made with the job: the first ids of its range
    outcome         text check (outcome in ('SUCCEEDED', 'FAILED', 'CANCELLED')),
    stop_outcome    text check (stop_outcome in ('FAILED', 'CANCELLED')),  -- how it ends since it was asked to stop
    name            text not null check (name <> ''),
    description     text,
    cancel_reason   text,
    submitted_by    text,
    constraint jobs_counters check (succeeded + failed + cancelled <= total and broken <= failed + cancelled),
    constraint jobs_ending check (
        (finished_at is null) = (outcome is null)
        and (outcome is null or succeeded + failed + cancelled = total)),
    constraint jobs_stopping check (
        (cancel_requested_at is null) = (stop_outcome is null) and (stop_outcome is null) = (cancel_reason is null))
) with (fillfactor = 50);

create index jobs_open on holdfast.jobs (id) where finished_at is null;
create index jobs_held on holdfast.jobs (held_until) where finished_at is null and held_until is not null;
create index jobs_outcome on holdfast.jobs (outcome, id) where outcome is not null;

create trigger jobs_never_change after update on holdfast.jobs for each row
    when ((old.id, old.created_at, old.name, old.first_tasks)
          is distinct from (new.id, new.created_at, new.name, new.first_tasks)
          or (old.outcome is not null and new.outcome is distinct from old.outcome
              and (old.outcome = 'SUCCEEDED' or new.outcome is not null))
          or (old.started_at is not null and new.started_at is distinct from old.started_at))
    execute function holdfast.refuse('an ended job only changes by being reopened, and a job that succeeded not at all');


create table holdfast.maps (
    id              uuid not null primary key,
    job_id          uuid not null,
    parent_id       uuid,                   -- the run that made it
    created_at      timestamptz not null,
    total           integer not null,
    open            integer not null,       -- how many of its runs have not ended
    unsuccessful    integer not null default 0,
    task            text not null,
    dataset         json not null,
    constraint maps_counters check (open between 0 and total and unsuccessful between 0 and total - open)
) with (fillfactor = 50);

create index maps_of_job on holdfast.maps (job_id);


create table holdfast.dependencies (
    on_id           uuid not null,          -- a run or a map
    run_id          uuid not null,
    policy          text not null check (policy in ('success', 'failure', 'always')),
    primary key (on_id, run_id),
    check (on_id <> run_id)
);

create index dependencies_of_run on holdfast.dependencies (run_id);

create trigger dependencies_never_change before update on holdfast.dependencies
    for each statement execute function holdfast.refuse('what a run depends on is told when it is submitted');


create table holdfast.resources (
    job_id          uuid not null,
    name            text not null,          -- the same thing named twice is one row
    created_at      timestamptz not null,
    resource        json not null,
    keep_for_retry  boolean not null default false,
    tried_at        timestamptz,
    error           text,
    primary key (job_id, name)
);


alter table holdfast.runs add column map_id uuid;
alter table holdfast.runs add constraint runs_lie_with_their_job check (
    job_id is null or substr(uuid_send(id), 1, 6) = substr(uuid_send(job_id), 1, 6));
alter table holdfast.runs add constraint runs_map check (map_id is null or job_id is not null);

-- What an ending has to know without looking it up.
alter table holdfast.ready add column job_id uuid, add column map_id uuid;
alter table holdfast.leases add column job_id uuid, add column map_id uuid;
alter table holdfast.waiting add column job_id uuid, add column map_id uuid,
                             add column rank_at timestamptz;    -- its place in the queue, if not by due_at

create index waiting_blocked on holdfast.waiting (run_id) where blockers > 0;

-- A job starts with the first claim of one of its runs. Here, and not in a statement of its own after the claim: so a
-- claim is one statement, which needs no transaction around it.
create function holdfast.start_jobs() returns trigger language plpgsql
    set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $$
declare
    ids uuid[] := array(select distinct job_id from arrived where job_id is not null);
begin
    if ids <> '{}' then
        with held as (
            select id from holdfast.jobs where id = any (ids) and started_at is null order by id for no key update
        )
        update holdfast.jobs set started_at = holdfast.now() from held
        where jobs.id = held.id and jobs.started_at is null;
    end if;
    return null;
end $$;

create trigger leases_start_jobs after insert on holdfast.leases referencing new table as arrived
    for each statement execute function holdfast.start_jobs();


-- The range of the ids of a job's runs.
create function holdfast.job_floor(job uuid) returns uuid
    language sql immutable parallel safe
    return (left(job::text, 13) || '-0000-0000-000000000000')::uuid;
create function holdfast.job_ceiling(job uuid) returns uuid
    language sql immutable parallel safe
    return (left(job::text, 13) || '-ffff-ffff-ffffffffffff')::uuid;

-- Whether an ending is what a dependent waited for.
create function holdfast.meets(outcome text, policy text) returns boolean
    language sql immutable parallel safe
    return case policy when 'success' then outcome = 'SUCCEEDED' when 'failure' then outcome = 'FAILED' else true end;

-- How a run or a map has ended; null while it has not.
create function holdfast.ending_of(node uuid) returns text
    language sql stable parallel safe
    return coalesce(
        (select attempts.outcome from holdfast.attempts
         where attempts.run_id = node and attempts.outcome is not null and attempts.reopened_at is null),
        (select case when maps.open > 0 then null when maps.unsuccessful > 0 then 'FAILED' else 'SUCCEEDED' end
         from holdfast.maps where maps.id = node));


-- A month with a run that an open job or a waiting run may still ask about stays; edges go with the runs they lead to.
create or replace function holdfast.is_live(month timestamptz) returns boolean language sql as $$
    select exists (
        select from (select run_id from holdfast.ready union all select run_id from holdfast.waiting
                     union all select run_id from holdfast.leases
                     union all select run_id from holdfast.idempotency_keys
                     union all select id from holdfast.jobs where finished_at is null
                     union all select on_id from holdfast.dependencies
                               join holdfast.waiting on waiting.run_id = dependencies.run_id) as live
        where live.run_id >= holdfast.id_floor(month) and live.run_id < holdfast.id_floor(month + interval '1 month'))
$$;

create or replace function holdfast.drop_partitions(before timestamptz) returns setof text language plpgsql
    set lock_timeout = '200ms' set timezone = 'UTC' as $$
declare
    part record;
    parent text;
    low uuid;
    high uuid;
begin
    for part in
        select child.relname, to_date(right(child.relname, 7), 'YYYY_MM')::timestamp at time zone 'UTC' as month
        from pg_inherits join pg_class child on child.oid = inhrelid
        where inhparent = 'holdfast.runs'::regclass and child.relname ~ '_[0-9]{4}_[0-9]{2}$'
        order by 1
    loop
        continue when part.month + interval '1 month' > before or holdfast.is_live(part.month);
        begin
            lock table only holdfast.runs in access exclusive mode;
            lock table only holdfast.attempts, only holdfast.events, only holdfast.logs, only holdfast.steps
                in access exclusive mode nowait;
            continue when holdfast.is_live(part.month);
            low := holdfast.id_floor(part.month);
            high := holdfast.id_floor(part.month + interval '1 month');
            foreach parent in array array['runs', 'attempts', 'events', 'logs', 'steps'] loop
                execute format('drop table holdfast.%I', parent || right(part.relname, 8));
            end loop;
            delete from holdfast.dependencies where run_id >= low and run_id < high;
            delete from holdfast.maps where id >= low and id < high;
            delete from holdfast.jobs where id >= low and id < high
                and not exists (select from holdfast.resources where resources.job_id = jobs.id);
        exception when lock_not_available then
            return;
        end;
        return next right(part.relname, 7);
    end loop;
end $$;
