-- Holdfast's ground: a run is where its row is.
--
--   runs       what was asked: written once, never changed
--   waiting    PENDING, not claimable yet: its time or its dependencies have not come
--   ready      PENDING, claimable now; a claim deletes the row
--   leases     RUNNING; a claim inserts the row, and deleting it is the fence of every ending
--   attempts   history: one row per attempt, written once when the attempt ends; `outcome` is set on the
--              row that ended the run. A run that ends without an attempt gets a row numbered 0, -1, ...
--
-- A lease is as long as its worker lives: `workers.expires_at` is pushed out by renewals, and a worker that
-- let it pass is dead for good (every boot has a fresh id). All times come from holdfast.now().

create schema if not exists holdfast;

create function holdfast.now() returns timestamptz
    language sql stable parallel safe
    return statement_timestamp();

-- The smallest version 7 UUID of an instant: ids of runs sort by time, so a range of ids is a range of time.
create function holdfast.id_floor(at timestamptz) returns uuid
    language sql immutable parallel safe
    return (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid;

create function holdfast.refuse() returns trigger language plpgsql as $$
begin
    raise exception using
        errcode = 'check_violation',
        message = format('holdfast refuses %s on %I: %s', lower(tg_op), tg_table_name, tg_argv[0]);
end $$;


create table holdfast.runs (
    id              uuid not null primary key,
    created_at      timestamptz not null,
    run_after       timestamptz,
    job_id          uuid,
    parent_id       uuid,
    priority        smallint not null default 0 check (priority between -100 and 100),
    payload_hash    bytea not null check (octet_length(payload_hash) = 32),
    task            text not null check (task <> ''),
    queue           text not null check (queue <> ''),
    parameters      json not null,
    policy          json,                   -- what differs from the default retry policy and time limit
    tags            text[],
    child_key       text,
    concurrency_key text,
    submitted_by    text,
    traceparent     text
) partition by range (id);

create index runs_payload_hash on holdfast.runs (payload_hash, created_at);

-- For each row, like every guard of a partitioned table that can be: its partitions then have it as well.
create trigger runs_never_change before update on holdfast.runs
    for each row execute function holdfast.refuse('a run is immutable once it is submitted');


create table holdfast.ready (
    run_id          uuid not null primary key,
    rank_at         timestamptz not null,
    number          integer not null check (number >= 1),              -- of the attempt to come
    excused         integer not null default 0 check (excused >= 0),   -- attempts that cost no budget
    ord             smallint not null,                                 -- priority, negated: one index condition
    queue           text not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 50000,
        autovacuum_vacuum_cost_delay = 0);

create unique index ready_order on holdfast.ready (queue, ord, rank_at, run_id);


create table holdfast.waiting (
    run_id          uuid not null primary key,
    due_at          timestamptz not null,
    blockers        integer not null default 0 check (blockers >= 0),
    number          integer not null check (number >= 1),
    excused         integer not null default 0 check (excused >= 0),
    ord             smallint not null,
    queue           text not null,
    reason          text not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

create index waiting_due on holdfast.waiting (due_at) where blockers = 0;


create table holdfast.workers (
    id              uuid not null primary key,
    started_at      timestamptz not null,
    heartbeat_at    timestamptz not null,
    expires_at      timestamptz not null,
    stopped_at      timestamptz,
    drain_requested_at timestamptz,
    pid             integer not null,
    slots           integer not null,
    lease           interval not null check (lease > interval '0'),
    tasks_completed bigint not null default 0,
    tasks_failed    bigint not null default 0,
    hostname        text not null,
    name            text not null,
    executor        text not null,
    version         text not null,
    queues          text[],                 -- null: every queue
    tasks           text[],                 -- null: not told
    statistics      json,
    check (expires_at >= heartbeat_at)
) with (fillfactor = 50);

create index workers_expiry on holdfast.workers (expires_at);


create table holdfast.leases (
    run_id          uuid not null primary key,
    worker_id       uuid not null,
    claimed_at      timestamptz not null,
    number          integer not null check (number >= 1),
    excused         integer not null default 0 check (excused >= 0),
    started_at      timestamptz,            -- set where starting is apart from claiming
    cancel_requested_at timestamptz,
    cancel_reason   text,
    executor        text,
    progress        json,
    details         json
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);

create index leases_cancelled on holdfast.leases (worker_id) where cancel_requested_at is not null;


create table holdfast.attempts (
    run_id          uuid not null,
    worker_id       uuid,
    claimed_at      timestamptz,
    started_at      timestamptz,
    finished_at     timestamptz not null,
    number          integer not null,
    exit_code       integer,
    result_size     bigint,
    status          text not null check (status in ('SUCCEEDED', 'FAILED', 'CANCELLED', 'LOST')),
    outcome         text,
    result          json,
    reopened_at     timestamptz,
    reopened_by     text,
    result_ref      text,
    result_sha256   bytea,
    reason          text,
    error           json,
    executor        text,
    progress        json,
    details         json,
    primary key (run_id, number),
    constraint attempts_outcome check (case status
        when 'SUCCEEDED' then outcome is not distinct from 'SUCCEEDED'
        when 'CANCELLED' then outcome is null or outcome = 'CANCELLED'
        else outcome is null or outcome in ('FAILED', 'CANCELLED') end),
    constraint attempts_result check (
        (status = 'SUCCEEDED') = (result is not null or result_ref is not null)
        and (result is null or result_ref is null)
        and (result_ref is null or (result_size is not null and octet_length(result_sha256) = 32))),
    constraint attempts_shape check (case
        when number >= 1 then worker_id is not null and claimed_at is not null
        else outcome is not distinct from 'CANCELLED' and worker_id is null and claimed_at is null end),
    constraint attempts_reopened check (
        (reopened_at is null) = (reopened_by is null)
        and (reopened_at is null or outcome in ('FAILED', 'CANCELLED')))
) partition by range (run_id);

-- At most one ending of a run is in force.
create unique index attempts_ending on holdfast.attempts (run_id) where outcome is not null and reopened_at is null;
create index attempts_unsuccessful on holdfast.attempts (outcome, run_id)
    where outcome in ('FAILED', 'CANCELLED') and reopened_at is null;

create trigger attempts_never_change after update on holdfast.attempts for each row
    when (not (old.reopened_at is null and new.reopened_at is not null)
          or (old.run_id, old.number, old.worker_id, old.claimed_at, old.started_at, old.finished_at, old.status, old.outcome,
              old.exit_code, old.reason, old.executor, old.result_ref, old.result_size, old.result_sha256)
             is distinct from
             (new.run_id, new.number, new.worker_id, new.claimed_at, new.started_at, new.finished_at, new.status, new.outcome,
              new.exit_code, new.reason, new.executor, new.result_ref, new.result_size, new.result_sha256)
          or (old.result::text, old.error::text, old.progress::text, old.details::text)
             is distinct from (new.result::text, new.error::text, new.progress::text, new.details::text))
    execute function holdfast.refuse('an ended attempt only changes by being reopened, once');


create table holdfast.events (
    run_id          uuid not null,
    at              timestamptz not null,
    attempt         integer not null,
    type            text not null,
    reason          text,
    data            json
) partition by range (run_id);

create index events_of_run on holdfast.events (run_id, at);

create trigger events_never_change before update on holdfast.events
    for each row execute function holdfast.refuse('events are only added');


create table holdfast.logs (
    run_id          uuid not null,
    seq             bigint not null generated always as identity,
    at              timestamptz not null,
    attempt         integer not null,
    level           text not null,
    message         text not null,
    primary key (run_id, seq)
) partition by range (run_id);


create table holdfast.steps (
    run_id          uuid not null,
    name            text not null check (name <> ''),
    attempt         integer not null,
    recorded_at     timestamptz not null,
    result          json not null,
    primary key (run_id, name)
) partition by range (run_id);


create table holdfast.idempotency_keys (
    scope           text not null,          -- whose keys these are: '' in process, else a principal
    key             text not null check (length(key) between 1 and 255),
    run_id          uuid not null,
    payload_hash    bytea not null,
    task            text not null,
    created_at      timestamptz not null,
    expires_at      timestamptz not null check (expires_at > created_at),
    primary key (scope, key)
);

create index idempotency_keys_expiry on holdfast.idempotency_keys (expires_at);


create table holdfast.queues (
    name            text not null primary key,
    paused_at       timestamptz,
    paused_by       text,
    pause_reason    text,
    max_running     integer check (max_running > 0),
    created_at      timestamptz not null,
    check ((paused_at is null) = (paused_by is null))
);


-- Who wants to hear that runs ended. While nobody does, endings write no outbox row.
create table holdfast.subscriptions (
    id              uuid not null primary key,
    name            text not null unique,
    kind            text not null,
    target          text not null,
    secret          text,
    filter          json,
    created_at      timestamptz not null,
    paused_at       timestamptz
);

create table holdfast.outbox (
    id              bigint not null primary key generated always as identity,
    run_id          uuid not null,
    number          integer not null,
    type            text not null,
    at              timestamptz not null,
    data            json not null
);


-- Counters, added to by whoever commits the change they count, and folded into `summary` by upkeep.
create table holdfast.tallies (
    task            text not null,
    kind            text not null,
    bucket          smallint not null default 0,
    amount          bigint not null,
    seconds         double precision not null default 0
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

create table holdfast.summary (
    task            text not null,
    kind            text not null,
    bucket          smallint not null,
    amount          bigint not null,
    seconds         double precision not null,
    updated_at      timestamptz not null,
    primary key (task, kind, bucket)
);


-- The guards: what no key can say. Each looks at a whole statement at once and asks by key for all of its runs together,
-- so a batch pays little. They bring their own planner settings: a join with the rows that arrived, planned while a table
-- was empty, walked all of that table for each batch once it had grown, and the plan was kept. The lowest and the highest
-- id tell which months can hold attempts of these runs, so that the others are not opened.

create function holdfast.refuse_run(offender uuid, what text) returns void language plpgsql as $$
begin
    raise exception using errcode = 'check_violation', message = format('holdfast refuses to %s (run %s)', what, offender);
end $$;

create function holdfast.guard_pending() returns trigger language plpgsql
    set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $$
declare
    ids uuid[] := array(select run_id from arrived order by run_id);
    lowest uuid := ids[1];
    highest uuid := ids[cardinality(ids)];
    offender uuid;
begin
    if ids = '{}' then
        return null;
    end if;
    select live.run_id into offender from (
        (select l.run_id from holdfast.leases l where l.run_id = any (ids) limit 1)
        union all
        (select a.run_id from holdfast.attempts a
         where a.run_id between lowest and highest and a.run_id = any (ids)
           and a.outcome is not null and a.reopened_at is null limit 1)
        union all
        (select w.run_id from holdfast.waiting w where tg_table_name = 'ready' and w.run_id = any (ids) limit 1)
        union all
        (select r.run_id from holdfast.ready r where tg_table_name = 'waiting' and r.run_id = any (ids) limit 1)
    ) as live limit 1;
    if found then
        perform holdfast.refuse_run(offender, 'queue a run that is queued already, is running or has ended');
    end if;
    return null;
end $$;

-- Only a run that was attempted before needs the questions about attempts one by one.
create function holdfast.guard_lease() returns trigger language plpgsql
    set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $$
declare
    ids uuid[] := array(select run_id from arrived order by run_id);
    lowest uuid := ids[1];
    highest uuid := ids[cardinality(ids)];
    offender uuid;
begin
    if ids = '{}' then
        return null;
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

create function holdfast.guard_attempt() returns trigger language plpgsql
    set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $$
declare
    ids uuid[] := array(select run_id from arrived);
    offender uuid;
begin
    if ids = '{}' then
        return null;
    end if;
    select l.run_id into offender from holdfast.leases l where l.run_id = any (ids) limit 1;
    if not found then
        ids := array(select run_id from arrived where outcome is not null);
        select queued.run_id into offender from (
            (select r.run_id from holdfast.ready r where r.run_id = any (ids) limit 1)
            union all
            (select w.run_id from holdfast.waiting w where w.run_id = any (ids) limit 1)) as queued limit 1;
    end if;
    if found then
        perform holdfast.refuse_run(offender, 'end an attempt of a run that is still leased, or a run that is queued');
    end if;
    return null;
end $$;

-- Whoever leaves a place must have come to the next one by the end of the statement. The first question is that of the
-- hot path: are the attempt numbers that left, in the order of their runs, those that came? Only a cancel or a retry
-- asks the second.

create function holdfast.guard_pending_left() returns trigger language plpgsql
    set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $$
declare
    ids uuid[];
    numbers integer[];
    offender uuid;
begin
    select array_agg(run_id order by run_id), array_agg(number order by run_id) into ids, numbers from departed;
    if numbers is distinct from (select array_agg(l.number order by l.run_id) from holdfast.leases l
                                 where l.run_id = any (ids)) then
        select o.run_id into offender from departed o
        where not exists (select from holdfast.leases l where l.run_id = o.run_id and l.number = o.number)
          and not exists (select from holdfast.ready r where r.run_id = o.run_id and r.number = o.number)
          and not exists (select from holdfast.waiting w where w.run_id = o.run_id and w.number = o.number)
          and not exists (select from holdfast.attempts a where a.run_id = o.run_id and a.number < 1
                          and a.outcome is not null and a.reopened_at is null) limit 1;
        if found then
            perform holdfast.refuse_run(offender, 'take a run from its queue that is neither leased nor cancelled');
        end if;
    end if;
    return null;
end $$;

create function holdfast.guard_lease_left() returns trigger language plpgsql
    set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $$
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
        where a.run_id is null
           or (a.outcome is null
               and not exists (select from holdfast.ready r where r.run_id = o.run_id and r.number = o.number + 1)
               and not exists (select from holdfast.waiting w where w.run_id = o.run_id and w.number = o.number + 1))
        limit 1;
        if found then
            perform holdfast.refuse_run(offender, 'drop a lease without ending its attempt and placing its run');
        end if;
    end if;
    return null;
end $$;

create function holdfast.guard_reopened() returns trigger language plpgsql as $$
begin
    if not exists (select from holdfast.ready where run_id = new.run_id)
       and not exists (select from holdfast.waiting where run_id = new.run_id) then
        perform holdfast.refuse_run(new.run_id, 'reopen a run without queueing it');
    end if;
    return null;
end $$;

-- History goes only together with its run, and a run only when nothing of it is left.
create function holdfast.guard_forgotten() returns trigger language plpgsql as $$
begin
    if tg_argv[0] = 'history' then
        if exists (select from holdfast.runs where id = old.run_id) then
            perform holdfast.refuse_run(old.run_id, 'forget part of a run that is still there');
        end if;
    elsif exists (select from holdfast.ready where run_id = old.id)
       or exists (select from holdfast.waiting where run_id = old.id)
       or exists (select from holdfast.leases where run_id = old.id)
       or exists (select from holdfast.attempts where run_id = old.id) then
        perform holdfast.refuse_run(old.id, 'forget a run that has not ended, or whose attempts are kept');
    end if;
    return null;
end $$;

create trigger ready_guard after insert on holdfast.ready referencing new table as arrived
    for each statement execute function holdfast.guard_pending();
create trigger waiting_guard after insert on holdfast.waiting referencing new table as arrived
    for each statement execute function holdfast.guard_pending();
create trigger leases_guard after insert on holdfast.leases referencing new table as arrived
    for each statement execute function holdfast.guard_lease();
create trigger attempts_guard after insert on holdfast.attempts referencing new table as arrived
    for each statement execute function holdfast.guard_attempt();

create trigger ready_left after delete on holdfast.ready referencing old table as departed
    for each statement execute function holdfast.guard_pending_left();
create trigger waiting_left after delete on holdfast.waiting referencing old table as departed
    for each statement execute function holdfast.guard_pending_left();
create trigger leases_left after delete on holdfast.leases referencing old table as departed
    for each statement execute function holdfast.guard_lease_left();
create trigger attempts_reopened after update on holdfast.attempts for each row
    when (old.reopened_at is null and new.reopened_at is not null)
    execute function holdfast.guard_reopened();
create trigger runs_forgotten after delete on holdfast.runs for each row
    execute function holdfast.guard_forgotten('run');
create trigger attempts_forgotten after delete on holdfast.attempts for each row
    execute function holdfast.guard_forgotten('history');
create trigger events_forgotten after delete on holdfast.events for each row
    execute function holdfast.guard_forgotten('history');

create trigger leases_never_move after update on holdfast.leases for each row
    when ((old.run_id, old.number, old.excused, old.worker_id, old.claimed_at)
          is distinct from (new.run_id, new.number, new.excused, new.worker_id, new.claimed_at)
          or (old.cancel_requested_at is not null and new.cancel_requested_at is distinct from old.cancel_requested_at))
    execute function holdfast.refuse('a lease changes hands only by a new attempt, and a cancel is never taken back');
create trigger ready_never_changes before update on holdfast.ready
    for each statement execute function holdfast.refuse('a ready run leaves the queue only by being claimed or cancelled');
create trigger waiting_never_moves after update on holdfast.waiting for each row
    when ((old.run_id, old.number, old.excused) is distinct from (new.run_id, new.number, new.excused))
    execute function holdfast.refuse('a waiting run keeps its attempt number');


-- A run as people ask for it: where it is, told as one row.
create view holdfast.run_status as
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
       coalesce((runs.policy ->> 'max_attempts')::integer, 3) as max_attempts,
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


-- Partitions: one set per month of run ids. Ids from clocks that are far off land in the default partition.

-- A guard that looks at a whole statement is not inherited: whoever writes to the partition by its own name meets it here.
create function holdfast.guard_partition(name text) returns void language plpgsql as $$
begin
    execute format('create trigger attempts_guard after insert on holdfast.%I referencing new table as arrived '
                   'for each statement execute function holdfast.guard_attempt()', name);
end $$;

-- A month's tables are made apart and attached, which leaves everybody who reads and writes the others undisturbed. Only
-- the default partition has to be had alone, for a moment; where somebody keeps it, the months are left for the next time.
-- So are they if somebody else is making them now. A month of which runs are in the default partition already has to
-- stay there, and does not keep later ones from being made.
create function holdfast.make_partitions(upto timestamptz) returns integer language plpgsql
    set lock_timeout = '200ms' set timezone = 'UTC' as $$
declare
    month timestamptz := date_trunc('month', holdfast.now(), 'UTC');
    parent text;
    name text;
    made integer := 0;
    before integer;
begin
    if not pg_try_advisory_xact_lock(hashtextextended('holdfast.make_partitions', 0)) then
        return 0;
    end if;
    while month <= upto loop
        before := made;
        begin
            foreach parent in array array['runs', 'attempts', 'events', 'logs', 'steps'] loop
                name := parent || to_char(month at time zone 'UTC', '_YYYY_MM');
                continue when to_regclass(format('holdfast.%I', name)) is not null;
                execute format('create table holdfast.%I (like holdfast.%I including all excluding identity)', name, parent);
                if parent = 'attempts' then
                    perform holdfast.guard_partition(name);
                end if;
                execute format('alter table holdfast.%I attach partition holdfast.%I for values from (%L) to (%L)',
                    parent, name, holdfast.id_floor(month), holdfast.id_floor(month + interval '1 month'));
                made := made + 1;
            end loop;
        exception
            when check_violation then
                made := before;
            when lock_not_available then
                return before;
        end;
        month := date_trunc('month', month + interval '32 days', 'UTC');
    end loop;
    return made;
end $$;

create function holdfast.is_live(month timestamptz) returns boolean language sql as $$
    select exists (
        select from (select run_id from holdfast.ready union all select run_id from holdfast.waiting
                     union all select run_id from holdfast.leases
                     union all select run_id from holdfast.idempotency_keys) as live
        where live.run_id >= holdfast.id_floor(month) and live.run_id < holdfast.id_floor(month + interval '1 month'))
$$;

-- Drop the partitions whose runs were all made before an instant. One that still has a live run, or a run that an
-- idempotency key points to, stays: whoever makes or reopens a run of that month has done so by the second look, or
-- waits for the lock. Everybody queues behind a lock that is waited for, so none is waited for long, and what could not
-- be had is left for the next time. That is sooner than a deadlock would be looked for, too: the month's own tables are
-- locked while others are held.
create function holdfast.drop_partitions(before timestamptz) returns setof text language plpgsql
    set lock_timeout = '200ms' set timezone = 'UTC' as $$
declare
    part record;
    parent text;
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
            foreach parent in array array['runs', 'attempts', 'events', 'logs', 'steps'] loop
                execute format('drop table holdfast.%I', parent || right(part.relname, 8));
            end loop;
        exception when lock_not_available then
            return;
        end;
        return next right(part.relname, 7);
    end loop;
end $$;

create table holdfast.runs_default partition of holdfast.runs default;
create table holdfast.attempts_default partition of holdfast.attempts default;
create table holdfast.events_default partition of holdfast.events default;
create table holdfast.logs_default partition of holdfast.logs default;
create table holdfast.steps_default partition of holdfast.steps default;
select holdfast.guard_partition('attempts_default');
select holdfast.make_partitions(holdfast.now() + interval '2 months');
