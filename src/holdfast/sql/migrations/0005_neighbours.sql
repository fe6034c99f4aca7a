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


-- Retention in small steps, events with stable numbers, and subscriptions that miss nothing.

-- Whether a key still points to a run of a month is read by index.
create index idempotency_keys_run on holdfast.idempotency_keys (run_id);

-- Ranges of ids whose runs were pruned, while something of them is left: edges, maps and jobs, and the table with the
-- attempts of a dropped month, whose stored results have to be noted before it goes. Steps go on where the last ended.
create table holdfast.pruned_ranges (
    low             uuid not null primary key,
    high            uuid not null,
    edges_to        uuid,
    attempts_to     uuid,
    swept_at        timestamptz,
    attempts        text
);

create index pruned_ranges_order on holdfast.pruned_ranges (swept_at nulls first, low);

-- Runs that are gone and whose results in the result store are to be removed.
create table holdfast.discarded_results (
    run_id          uuid not null primary key,
    tried_at        timestamptz
);

create index discarded_results_order on holdfast.discarded_results (tried_at nulls first, run_id);


-- A month with a live run, with an open job, or with a run that a key points to, stays. Each answer is read by index.
create or replace function holdfast.is_live(month timestamptz) returns boolean language sql
    set enable_seqscan = off set enable_bitmapscan = off as $$
    select exists (
        select from (select run_id from holdfast.ready union all select run_id from holdfast.waiting
                     union all select run_id from holdfast.leases
                     union all select id from holdfast.jobs where finished_at is null
                     union all select run_id from holdfast.idempotency_keys) as live
        where live.run_id >= holdfast.id_floor(month) and live.run_id < holdfast.id_floor(month + interval '1 month'))
$$;

-- So does a month with a run that a waiting run of another month depends on, which may want to read its result. Only
-- asked before the locks are taken: how a run ended is counted for those who wait when they begin to, or when it ends,
-- so a run that begins to wait just now loses nothing but that result.
create function holdfast.is_awaited(low uuid, high uuid) returns boolean language sql
    set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
    select exists (
        select from holdfast.dependencies join holdfast.waiting on waiting.run_id = dependencies.run_id
        where dependencies.on_id >= low and dependencies.on_id < high
          and (dependencies.run_id < low or dependencies.run_id >= high))
$$;

-- Drop the oldest month whose runs were all made before an instant and of which nothing is live. Everybody queues behind
-- a lock that is waited for, so none is waited for long; while the locks are held, liveness is asked again, by index, and
-- tables are dropped, nothing else. What is left of the month is for sweep_pruned, afterwards and in small steps. The
-- second look has to see what others have committed since the first, which only READ COMMITTED shows.
create or replace function holdfast.drop_partitions(before timestamptz) returns setof text language plpgsql
    set lock_timeout = '200ms' set timezone = 'UTC' as $$
declare
    part record;
    parent text;
    low uuid;
    high uuid;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = 'invalid_transaction_state', message = format(
            'holdfast refuses to drop partitions in a %s transaction; use READ COMMITTED',
            upper(current_setting('transaction_isolation')));
    end if;
    for part in
        select child.relname, to_date(right(child.relname, 7), 'YYYY_MM')::timestamp at time zone 'UTC' as month
        from pg_inherits join pg_class child on child.oid = inhrelid
        where inhparent = 'holdfast.runs'::regclass and child.relname ~ '_[0-9]{4}_[0-9]{2}$'
        order by 1
    loop
        low := holdfast.id_floor(part.month);
        high := holdfast.id_floor(part.month + interval '1 month');
        continue when part.month + interval '1 month' > before
                   or holdfast.is_live(part.month) or holdfast.is_awaited(low, high);
        begin
            lock table only holdfast.runs in access exclusive mode;
            lock table only holdfast.attempts, only holdfast.events, only holdfast.logs, only holdfast.steps
                in access exclusive mode nowait;
            if holdfast.is_live(part.month) then
                return;
            end if;
            foreach parent in array array['runs', 'events', 'logs', 'steps'] loop
                execute format('drop table holdfast.%I', parent || right(part.relname, 8));
            end loop;
            execute format('alter table holdfast.attempts detach partition holdfast.%I',
                'attempts' || right(part.relname, 8));
            insert into holdfast.pruned_ranges (low, high, attempts)
            values (low, high, 'attempts' || right(part.relname, 8))
            on conflict on constraint pruned_ranges_pkey
            do update set high = excluded.high, edges_to = null, attempts_to = null, swept_at = null,
                          attempts = excluded.attempts;
        exception when lock_not_available then
            return;
        end;
        return next right(part.relname, 7);
        return;
    end loop;
end $$;

-- Remove a bounded part of what pruned runs left; tells whether there is more. Runs whose ids lie in such a range may
-- have been made since, by a clock that is far off: nothing that belongs to a run that is there is touched.
create function holdfast.sweep_pruned(amount integer) returns boolean language plpgsql
    set enable_seqscan = off set enable_bitmapscan = off set lock_timeout = '200ms' as $$
declare
    part holdfast.pruned_ranges;
    upto uuid;
    ids uuid[];
    more boolean := false;
begin
    for part in select * from holdfast.pruned_ranges order by swept_at nulls first, low limit 100 for update skip locked
    loop
        begin
            select d.run_id into upto from holdfast.dependencies d
            where d.run_id >= part.low and d.run_id <= part.high and (part.edges_to is null or d.run_id > part.edges_to)
            order by d.run_id offset amount limit 1;
            delete from holdfast.dependencies d
            where d.run_id >= part.low and d.run_id <= coalesce(upto, part.high)
              and (part.edges_to is null or d.run_id > part.edges_to)
              and not exists (select from holdfast.runs r where r.id = d.run_id);
            part.edges_to := coalesce(upto, part.high);
            more := more or upto is not null;

            ids := array(select m.id from holdfast.maps m
                         where m.id between part.low and part.high
                           and not exists (select from holdfast.runs r
                                           where r.id between holdfast.job_floor(m.job_id)
                                                        and holdfast.job_ceiling(m.job_id))
                         order by m.id limit amount);
            delete from holdfast.maps where id = any (ids);
            more := more or cardinality(ids) = amount;

            ids := array(select j.id from holdfast.jobs j
                         where j.id between part.low and part.high and j.finished_at is not null
                           and not exists (select from holdfast.resources where resources.job_id = j.id)
                           and not exists (select from holdfast.runs r
                                           where r.id between holdfast.job_floor(j.id) and holdfast.job_ceiling(j.id))
                         order by j.id limit amount);
            delete from holdfast.jobs where id = any (ids) and finished_at is not null;
            more := more or cardinality(ids) = amount;

            if to_regclass('holdfast.' || quote_ident(part.attempts)) is null then
                part.attempts := null;
            else
                execute format('select run_id from holdfast.%I where $1 is null or run_id > $1 '
                               'order by run_id offset $2 limit 1', part.attempts)
                    into upto using part.attempts_to, amount * 10;
                execute format('insert into holdfast.discarded_results (run_id) select distinct run_id from holdfast.%I '
                               'where ($1 is null or run_id > $1) and ($2 is null or run_id <= $2) '
                               'and result_ref is not null on conflict do nothing', part.attempts)
                    using part.attempts_to, upto;
                part.attempts_to := upto;
                if upto is null then
                    execute format('drop table holdfast.%I', part.attempts);
                    part.attempts := null;
                else
                    more := true;
                end if;
            end if;

            if part.attempts is null and part.edges_to = part.high
               and not exists (select from holdfast.maps where id between part.low and part.high)
               and not exists (select from holdfast.jobs where id between part.low and part.high) then
                delete from holdfast.pruned_ranges where low = part.low;
            else
                update holdfast.pruned_ranges
                set edges_to = part.edges_to, attempts_to = part.attempts_to, attempts = part.attempts,
                    swept_at = holdfast.now()
                where low = part.low;
            end if;
        exception when lock_not_available then
            -- Another session holds something of it; it is tried again after all the others.
            update holdfast.pruned_ranges set swept_at = holdfast.now() where low = part.low;
        end;
    end loop;
    return more or exists (select from holdfast.pruned_ranges where swept_at is null);
end $$;


-- Whether an ending is what a dependent waited for. What was pruned had ended as it was waited for: had it not, those
-- who waited would have ended with it. A run that did not wait any more is asked about when somebody retries it.
create or replace function holdfast.meets(outcome text, policy text) returns boolean
    language sql immutable parallel safe
    return case when outcome = 'PRUNED' then true
                else case policy when 'success' then outcome = 'SUCCEEDED' when 'failure' then outcome = 'FAILED'
                                 else true end end;

-- How a run or a map has ended; null while it has not, PRUNED if it is not there.
create or replace function holdfast.ending_of(node uuid) returns text
    language sql stable parallel safe
    return coalesce(
        (select attempts.outcome from holdfast.attempts
         where attempts.run_id = node and attempts.outcome is not null and attempts.reopened_at is null),
        (select case when maps.open > 0 then null when maps.unsuccessful > 0 then 'FAILED' else 'SUCCEEDED' end
         from holdfast.maps where maps.id = node),
        case when not exists (select from holdfast.runs where runs.id = node)
              and not exists (select from holdfast.maps where maps.id = node) then 'PRUNED' end);


-- How many events of its run a FENCED event comes after; null if that could not be said when it was written.
alter table holdfast.events add column position integer;


-- Which endings a subscription wants is a matter of when they were committed, not of when their statements began.
alter table holdfast.subscriptions add column since pg_snapshot;
alter table holdfast.subscriptions alter column since set default pg_current_snapshot();
alter table holdfast.outbox add column xid xid8;
alter table holdfast.outbox alter column xid set default pg_current_xact_id();

-- A transaction that keeps the snapshot it began with may not see a subscription that was acknowledged long ago: it
-- always writes the event, and who wants it is seen when it is fanned out.
create or replace function holdfast.publish_ending() returns trigger language plpgsql as $$
begin
    if current_setting('transaction_isolation') <> 'read committed'
       or exists (select from holdfast.subscriptions) then
        insert into holdfast.outbox (run_id, number, type, at, data)
        values (new.run_id, new.number, 'RunCompleted', new.finished_at, json_build_object('status', new.outcome));
    end if;
    return null;
end $$;


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


-- The guards switch planner methods off, so every plan in them looks astronomically expensive, and a server with its
-- default settings would compile it. Callers' own connections (`client.on`) keep their settings, so the functions say it
-- themselves.
alter function holdfast.guard_pending() set jit = off;
alter function holdfast.guard_attempt() set jit = off;
alter function holdfast.guard_pending_left() set jit = off;
alter function holdfast.is_live(timestamptz) set jit = off;
alter function holdfast.is_awaited(uuid, uuid) set jit = off;
alter function holdfast.sweep_pruned(integer) set jit = off;
